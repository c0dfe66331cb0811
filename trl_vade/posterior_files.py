"""Posteriors as files of a user's choice, and the names that their rows get from a data set."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .checks import shown
from .durable import save_whole
from .errors import ConfigurationError, SnapshotMismatchError, VADEError
from .posterior_repo import table_path
from .posterior_source import split_source
from .posterior_table import PosteriorTable, facts_of, is_hub_id, write_table
from .posterior_views import COLUMNS, row_records
from .snapshot import Snapshot

ENDINGS = (".parquet", ".csv", ".jsonl")


def write_step(table: PosteriorTable, directory: Path, *, force: bool = False) -> tuple[Path, bool]:
    """Write `table` into a folder of the shared form; return its path and whether it had to be written.

    Raises:
        VADEError: a different file is there and `force` is not set, or the table does not say its step.
        OSError: the disk refused.
    """
    step = table.metadata.get("global_step")
    if step is None:
        raise VADEError(
            "This posterior does not say of which optimiser step it is (the tool that wrote it lost its metadata), so "
            "its folder has no name. `trl-vade posterior export` writes it to a file of your choice."
        )
    path = directory / table_path(int(step))
    with TemporaryDirectory() as folder:
        write_table(table, Path(folder) / path.name)
        content = (Path(folder) / path.name).read_bytes()
    if path.exists():
        if path.read_bytes() == content:
            return path, False
        if not force:
            raise VADEError(f"{path} is there and holds something else. --force replaces it; or give another folder.")
    save_whole(path, content)
    return path, True


def check_ending(path: Path) -> str:
    """Return the ending of `path` in small letters, or raise `ConfigurationError` unless it is one of `ENDINGS`."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ConfigurationError(
            f"{path} ends in {shown(ending)}; the ending says what is written: give {', '.join(ENDINGS)}."
        )
    return ending


def export_table(table: PosteriorTable, path: Path) -> None:
    """Write `table` as the ending of `path` says: .parquet (with its facts), .csv or .jsonl (a JSON object a line).

    Raises:
        ConfigurationError: another ending; nothing is written.
        OSError: the disk refused.
    """
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


def names_from(snapshot: Snapshot, name: str, config: str | None, split: str) -> dict[str, Any]:
    """What `posterior_table` takes of the data set that a snapshot is about: `sample_id`, `task` and `facts`.

    Raises:
        ConfigurationError: the data set cannot be loaded.
        SnapshotMismatchError: it does not have the rows that the snapshot is about, in their order.
    """
    from .data import dataset_fingerprint, sample_keys
    from .sample_ids import sample_ids

    place, revision = (name, None) if Path(name).exists() else split_source(name)
    dataset = _load_rows(place, config, split, revision)
    keys, _ = sample_keys(dataset)
    saved = snapshot.metadata.get("dataset_fingerprint")
    if dataset_fingerprint(keys) != saved:
        raise SnapshotMismatchError(
            f"The split {split} of {name} ({len(dataset):,} rows) is not what the posterior is about "
            f"({snapshot.sampler_state['posterior']['num_samples']:,} rows): the fingerprints of their rows differ "
            f"({dataset_fingerprint(keys)[:12]}... and {str(saved)[:12]}...), so names would go to the wrong rows. "
            "Give the data set of that run, without the rows that vade_max_prompt_length dropped, or leave --dataset "
            "out: rows are then named by their hashes."
        )
    facts = facts_of(snapshot)
    if not Path(place).exists() and is_hub_id(place):
        facts["dataset"] = place
    task = dataset["task"][:] if "task" in dataset.column_names else None
    return {"sample_id": sample_ids(dataset, keys), "task": task, "facts": facts}


def _load_rows(place: str, config: str | None, split: str, revision: str | None) -> Any:
    from datasets import load_dataset, load_from_disk

    try:
        if (Path(place) / "dataset_dict.json").exists():  # as `save_to_disk` leaves several splits
            return load_from_disk(place)[split]
        if (Path(place) / "state.json").exists():  # and one
            return load_from_disk(place)
        return load_dataset(place, config, split=split, revision=revision)
    except (ValueError, KeyError, OSError) as error:  # datasets 5.2: an unknown split or configuration is a ValueError
        raise ConfigurationError(f"--dataset {place} with --split {split} cannot be loaded: {error}") from error
