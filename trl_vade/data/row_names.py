"""The names of rows in published posteriors, and how to find rows by them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

from .row_keys import find_rows


def is_key_text(name: str) -> bool:
    """Return whether `name` looks like the key of a row: 16 hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{16}", name) is not None


ROWS_AT_A_TIME = 10_000
"""The rows read at a time. Arrow makes a table of its own for each row that does not follow the one before."""


class RowNames:
    """The unique names of a data set's rows. Making one reads the ids of all rows.

    A name is the text of the row's `id` if these texts distinguish all rows. Otherwise it is the row's key as 16
    hexadecimal digits. One row may lack an `id`; its name is its key, too.

    `keys`, (N,), are those of `row_keys.sample_keys`, of all columns or of some.
    """

    def __init__(self, dataset: Dataset, keys: NDArray[np.int64]):
        self.dataset, self._keys = dataset, keys
        self._ids: Dataset | None = None  # set if ids are the names
        kind = dataset.data.schema.field("id").type if "id" in dataset.column_names else pa.binary()
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return
        self._ids = dataset.select_columns(["id"]).with_format("arrow")
        without_id = sum(batch["id"].null_count for batch in _batches(self._ids, None))
        if without_id > 1 or len(set(self.of())) < len(dataset):
            self._ids = None

    def of(self, rows: Sequence[int] | NDArray[np.int64] | None = None) -> list[str]:
        """Return the names of the given rows in their order, or of all rows."""
        keys = self._keys if rows is None else self._keys[np.asarray(rows, dtype=np.int64)]
        if self._ids is None:
            return list(map(key_text, keys.tolist()))
        names: list[str] = []
        for batch in _batches(self._ids, rows):
            ids, start = batch["id"].to_pylist(), len(names)
            names += [key_text(int(keys[start + i])) if id is None else str(id) for i, id in enumerate(ids)]
        return names

    def find(self, wanted: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each wanted name, (W,), with -1 for an unknown name.

        A row is found by either name: its key, as in a checkpoint, or the text of its id, as in a published posterior.
        """
        row_of = {} if self._ids is None else {name: row for row, name in enumerate(self.of())}
        rows = np.array([row_of.get(name, -1) for name in wanted], dtype=np.int64)
        left = np.array([place for place in np.flatnonzero(rows < 0) if is_key_text(wanted[place])], dtype=np.int64)
        if len(left) and len(self._keys):
            keys = [int.from_bytes(bytes.fromhex(wanted[place]), "big", signed=True) for place in left]
            found, row = find_rows(np.array(keys, dtype=np.int64), self._keys)
            rows[left[found]] = row[found]
        return rows

    def columns(self, rows: NDArray[np.int64], task_column: str) -> dict[str, Any]:
        """Return the arguments `sample_id` and `task` of `posterior_table` for the rows, (V,).

        Without the column of the tasks `task` is None.
        """
        has_tasks = task_column in self.dataset.column_names
        return {"sample_id": self.of(rows), "task": row_labels(self.dataset, task_column, rows) if has_tasks else None}


def key_text(key: int) -> str:
    """Return a key of `row_keys.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def row_labels(
    dataset: Dataset, column: str, rows: Sequence[int] | NDArray[np.int64] | None = None
) -> list[str | None]:
    """Return the labels of the given rows, or of all, as texts; None for a missing label.

    A `ClassLabel` gives the name of the class.
    """
    feature = dataset.features[column]
    plain = dataset.select_columns([column]).with_format(None)
    values = [value for batch in _batches(plain, rows) for value in batch[column]]
    if not isinstance(feature, ClassLabel):
        return [None if value is None else str(value) for value in values]
    # datasets writes -1 for a missing label, as in the hidden labels of a test split.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _batches(dataset: Dataset, rows: Sequence[int] | NDArray[np.int64] | None) -> Iterator[Any]:
    if rows is None:
        yield from dataset.iter(ROWS_AT_A_TIME)
        return
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        yield dataset[[int(row) for row in rows[start : start + ROWS_AT_A_TIME]]]
