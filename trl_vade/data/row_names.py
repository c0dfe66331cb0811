"""The names of rows in published posteriors, and how to find rows by them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

from .row_keys import all_different, find_rows, id_keys, row_key


def is_key_text(name: str) -> bool:
    """Return whether `name` looks like the key of a row: 16 hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{16}", name) is not None


ROWS_AT_A_TIME = 10_000
"""The rows read at a time. Arrow makes a table of its own for each row that does not follow the one before."""


class RowNames:
    """The unique names of a data set's rows, created on demand.

    A name is the text of the row's `id` if that column distinguishes all rows; see `row_keys.sample_keys`. Otherwise
    it is the row's key as 16 hexadecimal digits. One row may lack an `id`; its name is its key, too.

    Args:
        dataset: the N rows.
        keys: (N,) the keys from `row_keys.sample_keys`, of all columns or of some.
    """

    def __init__(self, dataset: Dataset, keys: NDArray[np.int64]):
        self.dataset, self._keys = dataset, keys
        self._ids: Dataset | None = None  # set if ids are the names
        self._hashes = keys  # of the ids, if ids are the names
        if "id" not in dataset.column_names or not len(dataset):
            return
        kind = dataset.data.schema.field("id").type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return
        ids = dataset.select_columns(["id"]).with_format("arrow")
        if not _are_of_ids(keys, ids):
            self._hashes = id_keys(dataset)
            if not all_different(self._hashes):
                return
        self._of_texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        self._of_numbers = pa.types.is_integer(kind)
        self._ids = ids
        if not self._are_names(ids):
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
        rows = np.full(len(wanted), -1, dtype=np.int64)
        if self._ids is not None and (self._of_texts or self._of_numbers):
            hashes = {place: key for place, name in enumerate(wanted) if (key := self._hash_of(name)) is not None}
            _look_up(rows, hashes, self._hashes)
        elif self._ids is not None:
            row_of = {name: row for row, name in enumerate(self.of())}
            rows[:] = [row_of.get(name, -1) for name in wanted]
        left = [place for place in np.flatnonzero(rows < 0).tolist() if is_key_text(wanted[place])]
        _look_up(rows, {place: _key_of(wanted[place]) for place in left}, self._keys)
        return rows

    def _are_names(self, ids: Dataset) -> bool:
        """Return whether different ids give different names, also for a row without an id."""
        if not (self._of_texts or self._of_numbers):  # rare; -0.0 equals 0.0, but their texts differ
            values = {value for batch in _batches(ids, None) for value in batch["id"].to_pylist()}
            return len(values) == len(set(self.of())) == len(ids)
        without = np.flatnonzero(self._hashes == row_key({"id": None}))
        same = self._hash_of(key_text(int(self._keys[without[0]]))) if len(without) else None
        return same is None or not (self._hashes == same).any()

    def _hash_of(self, name: str) -> int | None:
        """Return the key of a row with this id, in a column of texts or numbers, or None if no id can have it."""
        if self._of_texts:
            return row_key({"id": name})
        return row_key({"id": int(name)}) if _is_number(name, most=2**64) else None


class OfRows(Sequence[Any]):
    """A sequence of N entries that holds the values of V rows only.

    Args:
        rows: (V,) the rows.
        values: their V values.
        number: N.
    """

    def __init__(self, rows: NDArray[np.int64], values: Sequence[Any], number: int):
        self._values, self._number = dict(zip(rows.tolist(), values, strict=True)), number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, row: Any) -> Any:
        return self._values[row]


def names_and_tasks(names: RowNames, rows: NDArray[np.int64], column: str) -> dict[str, Any]:
    """Return the arguments `sample_id` and `task` of `posterior_table`.

    Args:
        names: the names of the N rows.
        rows: (V,) the visited rows.
        column: the column of the tasks. Without such a column `task` is None.
    """
    dataset, number = names.dataset, len(names.dataset)
    rows = rows[rows < number]  # `posterior_table` refuses a snapshot with more rows
    task = row_labels(dataset, column, rows) if column in dataset.column_names else None
    return {
        "sample_id": OfRows(rows, names.of(rows), number),
        "task": None if task is None else OfRows(rows, task, number),
    }


def key_text(key: int) -> str:
    """Return a key of `row_keys.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def keys_of_ids(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return, for each name as the text of an `id`, the key texts that its row can have.

    An id may be a text or, if the name is one, a number. Names that are not ids give keys that no row has.
    """
    numbers = [int(name) if _is_number(name) else None for name in names]
    return [
        tuple(key_text(row_key({"id": id})) for id in ([name] if number is None else [name, number]))
        for name, number in zip(names, numbers, strict=True)
    ]


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
    """Yield the given rows, or all, in batches in the data set's format."""
    if rows is None:
        yield from dataset.iter(ROWS_AT_A_TIME)
        return
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        yield dataset[[int(row) for row in rows[start : start + ROWS_AT_A_TIME]]]


def _are_of_ids(keys: NDArray[np.int64], ids: Dataset) -> bool:
    """Return whether the distinct `keys` are hashes of the ids, by the first two rows.

    `row_keys.sample_keys` hashes the ids of all rows or of none. A row without an id proves nothing, because it may
    have the key of a row without a prompt. At most one row has no id.
    """
    first = ids[list(range(min(2, len(ids))))]["id"].to_pylist()
    return any(id is not None and row_key({"id": id}) == key for id, key in zip(first, keys[:2].tolist(), strict=True))


def _look_up(rows: NDArray[np.int64], wanted: dict[int, int], keys: NDArray[np.int64]) -> None:
    """Write into `rows`, at the places of `wanted`, the row of each known key."""
    if wanted and len(keys):
        places = np.fromiter(wanted, np.int64, len(wanted))
        found, row_of = find_rows(np.fromiter(wanted.values(), np.int64, len(wanted)), keys)
        rows[places[found]] = row_of[found]


def _key_of(text: str) -> int:
    """Return the key of a `key_text`."""
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)


def _is_number(name: str, most: int = 2**63) -> bool:
    """Return whether `name` is Python's text of a 64-bit whole number below `most`."""
    if len(name) > len(str(-(2**63))) or not (name.isascii() and name.removeprefix("-").isdecimal()):
        return False
    return str(int(name)) == name and -(2**63) <= int(name) < most
