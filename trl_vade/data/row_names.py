"""Rows of a data set by name: the text that stands for a row in a published posterior, and rows found again by it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

from .key_hashing import row_key
from .row_keys import all_different, find_rows, id_keys


def is_key_text(name: str) -> bool:
    """Whether `name` looks like a row that is named by its key: 16 hexadecimal digits."""
    return re.fullmatch("[0-9a-f]{16}", name) is not None


ROWS_AT_A_TIME = 10_000
"""That are read for their names. Each of rows that do not stand side by side is a table of its own to Arrow."""


class RowNames:
    """
    The names of a data set's rows, all different. They are made where they are asked for, and not kept.

    A name is the text of the row's `id` where that column tells all rows apart, as `row_keys.sample_keys` decides it,
    else the row's key as 16 hexadecimal digits. So is that of the one row that may have no `id`.

    Args:
        dataset: N rows.
        keys: (N,) of `data.sample_keys(dataset)`, or of a part of its columns.

    Attributes:
        dataset: as given.
    """

    def __init__(self, dataset: Dataset, keys: NDArray[np.int64]):
        self.dataset, self._keys = dataset, keys
        self._ids: Dataset | None = None  # where they are the names
        self._hashes = keys  # of the ids, where they are the names
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
        """Return the names of K rows, in the order of their numbers given; None: of all."""
        keys = self._keys if rows is None else self._keys[np.asarray(rows, dtype=np.int64)]
        if self._ids is None:
            return list(map(key_text, keys.tolist()))
        names: list[str] = []
        for batch in _batches(self._ids, rows):
            ids, start = batch["id"].to_pylist(), len(names)
            names += [key_text(int(keys[start + i])) if id is None else str(id) for i, id in enumerate(ids)]
        return names

    def find(self, wanted: Sequence[str]) -> NDArray[np.int64]:
        """Return (W,) the row of each name that is wanted, -1 where there is none.

        A row is known by both names that it can have: a checkpoint has the keys of its rows and not the texts of their
        ids, which a published posterior has.
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
        """Whether ids that differ give names that differ, also from that of the row that has no id."""
        if not (self._of_texts or self._of_numbers):  # rare, and not for millions: -0.0 equals 0.0 and not its text
            values = {value for batch in _batches(ids, None) for value in batch["id"].to_pylist()}
            return len(values) == len(set(self.of())) == len(ids)
        without = np.flatnonzero(self._hashes == row_key({"id": None}))
        same = self._hash_of(key_text(int(self._keys[without[0]]))) if len(without) else None
        return same is None or not (self._hashes == same).any()

    def _hash_of(self, name: str) -> int | None:
        """The key of a row whose id has the text `name`, in a column of texts or of numbers; None: no id can."""
        if self._of_texts:
            return row_key({"id": name})
        return row_key({"id": int(name)}) if _is_number(name, most=2**64) else None


class OfRows(Sequence[Any]):
    """Stands in for a list of N entries where only those of V rows are asked for.

    Args:
        rows: (V,) their numbers.
        values: V.
        number: N.
    """

    def __init__(self, rows: NDArray[np.int64], values: Sequence[Any], number: int):
        self._values, self._number = dict(zip(rows.tolist(), values, strict=True)), number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, row: Any) -> Any:
        return self._values[row]


def names_and_tasks(names: RowNames, rows: NDArray[np.int64], column: str) -> dict[str, Any]:
    """Return what `posterior_table` takes of the rows that it is about: `sample_id`, and `task`.

    Args:
        names: of N rows.
        rows: (V,) numbers of those that were visited.
        column: with their tasks; where it is missing, `task` is None.
    """
    dataset, number = names.dataset, len(names.dataset)
    rows = rows[rows < number]  # `posterior_table` refuses a snapshot of more rows than there are
    task = row_labels(dataset, column, rows) if column in dataset.column_names else None
    return {
        "sample_id": OfRows(rows, names.of(rows), number),
        "task": None if task is None else OfRows(rows, task, number),
    }


def sample_ids(
    dataset: Dataset, keys: NDArray[np.int64], rows: Sequence[int] | NDArray[np.int64] | None = None
) -> list[str]:
    """`RowNames(dataset, keys).of(rows)`."""
    return RowNames(dataset, keys).of(rows)


def find_samples(dataset: Dataset, keys: NDArray[np.int64], wanted: Sequence[str]) -> NDArray[np.int64]:
    """`RowNames(dataset, keys).find(wanted)`."""
    return RowNames(dataset, keys).find(wanted)


def key_text(key: int) -> str:
    """Return a number of `row_keys.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def keys_of_ids(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for each name, the text of a row's `id`, the `key_text`s that the row can have: of the text, and of the
    number where it is one.

    Args:
        names: all different. Those of rows that were named by something else give keys that no row has.
    """
    numbers = [int(name) if _is_number(name) else None for name in names]
    return [
        tuple(key_text(row_key({"id": id})) for id in ([name] if number is None else [name, number]))
        for name, number in zip(names, numbers, strict=True)
    ]


def row_labels(
    dataset: Dataset, column: str, rows: Sequence[int] | NDArray[np.int64] | None = None
) -> list[str | None]:
    """Return the labels of K rows in a column of any type, as texts; None where a row has none.

    A `ClassLabel`, which is a number in the table, gives the name of the class.

    Args:
        rows: their numbers; None: all N rows.
    """
    feature = dataset.features[column]
    plain = dataset.select_columns([column]).with_format(None)
    values = [value for batch in _batches(plain, rows) for value in batch[column]]
    if not isinstance(feature, ClassLabel):
        return [None if value is None else str(value) for value in values]
    # datasets writes -1 for a label that is missing, as in the hidden labels of a test split.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _batches(dataset: Dataset, rows: Sequence[int] | NDArray[np.int64] | None) -> Iterator[Any]:
    """The rows of these numbers, or all, in the data set's format."""
    if rows is None:
        yield from dataset.iter(ROWS_AT_A_TIME)
        return
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        yield dataset[[int(row) for row in rows[start : start + ROWS_AT_A_TIME]]]


def _are_of_ids(keys: NDArray[np.int64], ids: Dataset) -> bool:
    """Whether `keys`, all different, are hashes of the ids: `row_keys.sample_keys` makes all or none of them so.

    A row without an id is no example, since it may have the key of one without a prompt. There is at most one.
    """
    first = ids[list(range(min(2, len(ids))))]["id"].to_pylist()
    return any(id is not None and row_key({"id": id}) == key for id, key in zip(first, keys[:2].tolist(), strict=True))


def _look_up(rows: NDArray[np.int64], wanted: dict[int, int], keys: NDArray[np.int64]) -> None:
    """Write into `rows`, at the places of `wanted`, the row of each key that is there."""
    if wanted and len(keys):
        places = np.fromiter(wanted, np.int64, len(wanted))
        found, row_of = find_rows(np.fromiter(wanted.values(), np.int64, len(wanted)), keys)
        rows[places[found]] = row_of[found]


def _key_of(text: str) -> int:
    """The key whose `key_text` it is."""
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)


def _is_number(name: str, most: int = 2**63) -> bool:
    """Whether `name` is the text of a whole number below `most`, and of 64 bits, as Python writes it."""
    if len(name) > len(str(-(2**63))) or not (name.isascii() and name.removeprefix("-").isdecimal()):
        return False
    return str(int(name)) == name and -(2**63) <= int(name) < most
