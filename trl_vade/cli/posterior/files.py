"""Posteriors as files of a user's choice, and the names that their rows get from a data set."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, SnapshotMismatchError, VADEError, abbreviated
from trl_vade.files import save_whole
from trl_vade.hub.posteriors.facts import named_dataset
from trl_vade.hub.posteriors.repository import table_path
from trl_vade.hub.posteriors.source import split_source
from trl_vade.hub.posteriors.table import PosteriorTable, encode_table, facts_of, posterior_table, write_table
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot

from ..data_sets import load_rows

COLUMNS = ("sample_id", "index", "task", "alpha", "beta", "visits", "pass_rate", "last_step")
ENDINGS = (".parquet", ".csv", ".jsonl")


def row_records(table: PosteriorTable, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows as JSON values. A task that is not known is None; `task` is left out where no row's is known."""
    names = [name for name in COLUMNS if name != "task" or table.task is not None]
    columns = [getattr(table, name) for name in names]
    plain = [column if isinstance(column, list) else column.tolist() for column in columns]
    return [{name: column[row] for name, column in zip(names, plain, strict=True)} for row in rows]


def write_step(table: PosteriorTable, directory: Path, *, force: bool = False) -> tuple[Path, bool]:
    """Write `table` into a folder of the shared form; return its path and whether it had to be written.

    A different file there, without `force`, and a table that does not say its step are a `VADEError`.
    """
    step = table.metadata.get("global_step")
    if step is None or (directory.exists() and not directory.is_dir()):
        why = "the tool that wrote this posterior lost its optimiser step" if step is None else "it is a file"
        raise VADEError(
            f"{directory} cannot get a folder of a step: {why}. `trl-vade posterior export` writes a posterior to a "
            "file of your choice."
        )
    path, content = directory / table_path(int(step)), encode_table(table)
    if path.exists() and path.read_bytes() == content:
        return path, False
    if path.exists() and not force:
        raise VADEError(f"{path} is there and holds something else. --force replaces it; or give another folder.")
    save_whole(path, content)
    return path, True


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
        writer.writerows({name: _no_formula(value) for name, value in record.items()} for record in records)
    save_whole(path, text.getvalue().encode())


def _no_formula(value: Any) -> Any:
    """Return a text that a spreadsheet would run as a formula with an apostrophe before it, else `value`."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")) else value


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
    facts = facts_of(snapshot) | {fact: value for fact, value in named_dataset(name).items() if value is not None}
    visited = snapshot.sampler_state["posterior"]["sample_index"]
    return posterior_table(snapshot, facts=facts, **RowNames(dataset, keys).columns(visited, task_column or "task"))
