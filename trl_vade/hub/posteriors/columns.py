"""The columns of a posterior's table: their types, and the rules that every file must follow."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.checks import MOST_TRIALS, check_whole_number
from trl_vade.errors import SnapshotCorruptError
from trl_vade.files import FORMAT_VERSION
from trl_vade.samplers.posterior import beta_mean

AGAIN = "The file was damaged or edited. Take another copy, or an earlier step."

TYPES = {
    "sample_id": pa.string(),
    "index": pa.int64(),
    "task": pa.string(),
    "alpha": pa.float64(),
    "beta": pa.float64(),
    "visits": pa.int64(),
    "pass_rate": pa.float64(),
    "last_step": pa.int64(),
}
ROWS_DIGEST = "rows_sha256"  # the name of `digest_of_rows` in the metadata

MOST_STEPS = 10**12  # The largest optimiser step. Every step up to it has a valid folder name.
_BOUNDS = {
    "format_version": (1, FORMAT_VERSION),
    "global_step": (0, MOST_STEPS),
    "generation_batches": (0, 2**53),
    "num_samples": (1, 2**53),
}


def digest_of_rows(table: Any) -> str:
    """Return the SHA-256 of the rows of a `PosteriorTable`. It does not depend on the file."""
    tasks = table.task or []
    places = {task: place for place, task in enumerate(dict.fromkeys(tasks)) if task is not None}
    digest = hashlib.sha256(f"{len(table)} {len(places)}".encode())
    for text in (*table.sample_id, *places):  # one by one: a joined text would be as large as all
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    numbers = [getattr(table, name) for name, kind in TYPES.items() if not pa.types.is_string(kind)]
    for values in (np.array([places.get(task, -1) for task in tasks], dtype=np.int64), *numbers):
        digest.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def read_columns(path: Any, file: pq.ParquetFile) -> dict[str, Any]:
    """Return each column as a list (texts) or an array (numbers); `task` is None if the file lacks it.

    A column that is missing, doubled, of another type, or has nulls is a `SnapshotCorruptError`.
    """
    schema = file.schema_arrow
    names = [name for name in TYPES if name != "task" or name in schema.names]
    for name in names:
        found = [field.type for field in schema if field.name == name]
        if len(found) != 1 or not _fits(found[0], TYPES[name]):
            raise _wrong(path, name, f"has {found[0]}" if len(found) == 1 else "is missing or doubled")
    # Texts stay in their dictionary: decoded, one long text may fill the memory in all of its rows.
    texts = [name for name in names if pa.types.is_string(TYPES[name])]
    options = {"metadata": file.metadata, "read_dictionary": texts, "page_checksum_verification": True}
    with pq.ParquetFile(path, **options) as again:
        content = again.read(names)
    content.validate(full=True)  # a damaged place in a dictionary, and texts that are none
    return {"task": None} | {name: _column(path, name, content.column(name)) for name in names}


def check_table(path: Any, table: Any) -> None:
    """Raise `SnapshotCorruptError` for impossible rows of a `PosteriorTable`, or impossible facts if it has any."""
    for name, (minimum, maximum) in _BOUNDS.items() if table.metadata else ():
        limits: dict[str, Any] = {"minimum": minimum, "maximum": maximum}
        value = table.metadata.get(name)
        check_whole_number(f"{path}: {name}", value, **limits, advice=AGAIN, error=SnapshotCorruptError)
    most = MOST_TRIALS * table.visits
    rows, batches = (table.metadata.get(name, 2**63) for name in ("num_samples", "generation_batches"))
    with np.errstate(all="ignore"):  # for counts that break the rules
        gap = np.abs(table.pass_rate - beta_mean(table.alpha, table.beta))
    rules = {
        "visits must be in [1, 2**53]": (table.visits >= 1) & (table.visits <= 2**53),
        "visits must be at most last_step": table.visits <= table.last_step,
        # The bounds also exclude NaN and infinity.
        "alpha must be in [0, 2**53] a visit": (table.alpha >= 0) & (table.alpha <= most),
        "beta must be in [0, 2**53] a visit": (table.beta >= 0) & (table.beta <= most),
        "pass_rate must be (alpha + 1) / (alpha + beta + 2)": gap <= 1e-6,
        "sample_id must differ in all rows": _first_of_its_kind(np.array(table.sample_id, dtype=object)),
        "index must differ in all rows": _first_of_its_kind(table.index),
        f"index must be in [0, {rows})": (table.index >= 0) & (table.index < rows),
        f"last_step must be in [0, {batches}]": (table.last_step >= 0) & (table.last_step <= batches),
    }
    for rule, holds in rules.items():
        if not np.all(holds):
            broken = f"{np.count_nonzero(~holds)} of {len(table)} rows break this"
            raise SnapshotCorruptError(f"{path}: {rule}, and {broken}. {AGAIN}")


def _column(path: Any, name: str, column: pa.ChunkedArray) -> Any:
    if column.null_count and name != "task":
        raise _wrong(path, name, f"has {column.null_count} nulls")
    if not pa.types.is_string(TYPES[name]):
        return np.array(column.cast(TYPES[name]).to_numpy(), dtype=TYPES[name].to_pandas_dtype())  # a writable copy
    parts = [(chunk.dictionary.to_pylist(), chunk.indices.to_pylist()) for chunk in column.chunks]
    return [
        None if place is None else words[place] for words, places in parts for place in places
    ]  # equal: one object


def _first_of_its_kind(values: Any) -> Any:
    """Return whether no earlier entry is equal, (V,)."""
    return np.isin(np.arange(len(values)), np.unique(values, return_index=True)[1])


def _wrong(path: Any, name: str, found: str) -> SnapshotCorruptError:
    return SnapshotCorruptError(f"{path}: the column {name} {found}; it must hold {TYPES[name]} in every row. {AGAIN}")


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column type can be cast. Other tools write other widths of the same kind."""
    if pa.types.is_string(wanted):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.types.is_integer(kind) or (pa.types.is_floating(wanted) and pa.types.is_floating(kind))
