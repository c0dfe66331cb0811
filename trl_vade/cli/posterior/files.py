"""Posteriors as files of a user's choice, and the names that their rows get from a data set."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from trl_vade.errors import ConfigurationError, SnapshotError, SnapshotMismatchError, VADEError, abbreviated
from trl_vade.files import save_whole
from trl_vade.hub.posteriors.repository import table_path
from trl_vade.hub.posteriors.source import split_source
from trl_vade.hub.posteriors.table import PosteriorTable, facts_of, posterior_table, read_table, write_table
from trl_vade.hub.uploading import hub_id
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..data_sets import load_rows
from .views import COLUMNS, named_by_keys, row_records

ENDINGS = (".parquet", ".csv", ".jsonl")


def write_step(table: PosteriorTable, directory: Path, *, force: bool = False) -> tuple[Path, bool]:
    """Write `table` into a folder of the shared form; return its path and whether it had to be written.

    A different file there, without `force`, and a table that does not say its step are a `VADEError`.
    """
    step = table.metadata.get("global_step")
    if step is None:
        raise VADEError(
            "This posterior does not say of which optimiser step it is (the tool that wrote it lost its metadata), so "
            "its folder has no name. `trl-vade posterior export` writes it to a file of your choice."
        )
    if not directory.is_dir() and directory.exists():
        raise VADEError(f"{directory} is a file; give a folder, or `trl-vade posterior export` a file of your choice.")
    path = directory / table_path(int(step))
    with TemporaryDirectory() as folder:
        write_table(table, Path(folder) / path.name)
        content = (Path(folder) / path.name).read_bytes()
    if path.exists():
        if path.read_bytes() == content:
            return path, False
        if not force:
            raise VADEError(
                f"{path} is there and holds something else{_other_names(table, path)}. --force replaces it; or give "
                "another folder."
            )
    save_whole(path, content)
    return path, True


def _other_names(table: PosteriorTable, path: Path) -> str:
    """Return a warning if the rows of `table` may have other names in the file `path`, else an empty text."""
    try:
        there = named_by_keys(read_table(path))
    except SnapshotError:
        return ""
    words = {True: "hashes", False: "their ids"}
    here = named_by_keys(table)
    return (
        "" if here == there else f": its rows are named by {words[there]} and these, maybe the same, by {words[here]}"
    )


def check_ending(path: Path) -> str:
    """Return the ending of `path` in small letters, or raise `ConfigurationError` unless it is one of `ENDINGS`."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ConfigurationError(
            f"{path} ends in {abbreviated(ending)}; the ending says what is written: give {', '.join(ENDINGS)}."
        )
    return ending


def export_table(table: PosteriorTable, path: Path) -> None:
    """Write `table` as the ending of `path` says: .parquet (with its facts), .csv or .jsonl (a JSON object a line)."""
    ending = check_ending(path)
    if ending == ".parquet":
        write_table(table, path)
        return
    records = row_records(table, range(len(table)))
    text = io.StringIO(newline="")
    if ending == ".jsonl":
        text.writelines(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    else:
        names = [name for name in COLUMNS if name != "task" or table.task is not None]
        # Texts in quotes: Python 3.11 would leave them away round a lone carriage return, and a reader lose the row.
        writer = csv.DictWriter(text, names, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(records)
    save_whole(path, text.getvalue().encode())


def named_table(
    folder: Path, name: str, *, config: str | None = None, split: str = "train", task_column: str | None = None
) -> PosteriorTable:
    """Return the posterior of a checkpoint or an output directory, with the names and the tasks of its data set.

    `name` is "user/name" or "user/name@revision" on the Hub, or a folder. Without `task_column` the tasks are those of
    the column `task`, if there is one.

    Raises:
        ConfigurationError: the folder has no snapshot; the data set cannot be loaded, or lacks the column.
        SnapshotError: the snapshot is damaged, or the data set does not have the rows that it is about, in
            their order.
    """
    from trl_vade.data.row_keys import dataset_fingerprint, sample_keys
    from trl_vade.data.row_names import RowNames
    from trl_vade.hub.dataset_origin import hub_origin

    if not (folder / POSTERIOR_FILE).is_file():
        raise ConfigurationError(
            f"--dataset names the rows of a checkpoint or an output directory, and {folder} has no {POSTERIOR_FILE}. "
            "Name one of these, or leave --dataset out: a table that is written already has the names it was given."
        )
    snapshot = load_snapshot(folder)
    place, revision = (name, None) if Path(name).exists() else split_source(name)
    dataset = load_rows("--dataset " + place, place, config, split, revision)
    if task_column is not None and task_column not in dataset.column_names:
        raise ConfigurationError(
            f"{name} has no column {abbreviated(task_column)}; it has {', '.join(dataset.column_names)}."
        )
    keys, _ = sample_keys(dataset)
    here, saved = dataset_fingerprint(keys), snapshot.metadata.get("dataset_fingerprint")
    if here != saved:
        raise SnapshotMismatchError(
            f"The split {split} of {name} ({len(dataset):,} rows) is not what the posterior is about "
            f"({snapshot.sampler_state['posterior']['num_samples']:,} rows): the fingerprints of their rows differ "
            f"({here[:12]}... and {str(saved)[:12]}...), so names would go to the wrong rows. "
            "Give the data set of that run, without the rows that vade_max_prompt_length dropped, or leave --dataset "
            "out: rows are then named by their hashes."
        )
    origin = dict(zip(("dataset", "dataset_revision"), hub_origin(dataset, hub_id(place)), strict=True))
    facts = facts_of(snapshot) | {fact: value for fact, value in origin.items() if value is not None}
    visited = snapshot.sampler_state["posterior"]["sample_index"]
    return posterior_table(snapshot, facts=facts, **RowNames(dataset, keys).columns(visited, task_column or "task"))
