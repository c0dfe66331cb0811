"""Rows of a data set by name: the text that stands for a row in a published posterior, and rows found again by it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from datasets import ClassLabel, Dataset
from numpy.typing import NDArray

from .data import sample_keys
from .join import find_rows
from .posterior_columns import is_key_text


def sample_ids(dataset: Dataset, keys: NDArray[np.int64]) -> list[str]:
    """Return N names, all different, one for each row.

    A name is the text of the row's `id` where that column tells all rows apart, as `data.sample_keys` decides it, else
    the row's key as 16 hexadecimal digits. So is that of the one row that may have no `id`.

    Args:
        dataset: N rows.
        keys: (N,) of `data.sample_keys(dataset)`.
    """
    hexadecimal = [key_text(key) for key in keys.tolist()]
    ids = _ids(dataset)
    if ids is None:
        return hexadecimal
    names = [digits if text is None else text for text, digits in zip(ids, hexadecimal, strict=True)]
    return names if len(set(names)) == len(names) else hexadecimal


def find_samples(dataset: Dataset, keys: NDArray[np.int64], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return (W,) the row of each name that is wanted, -1 where there is none.

    A row is known by both names that `sample_ids` can give it: a checkpoint has the keys of its rows and not the texts
    of their ids, which a published posterior has.

    Args:
        dataset: N rows.
        keys: (N,) of `data.sample_keys(dataset)`.
        wanted: W names.
    """
    row_of = {name: row for row, name in enumerate(sample_ids(dataset, keys))}
    rows = np.array([row_of.get(name, -1) for name in wanted], dtype=np.int64)
    left = [place for place in np.flatnonzero(rows < 0).tolist() if is_key_text(wanted[place])]
    if left and len(keys):
        numbers = np.array([int(wanted[place], 16) for place in left], dtype=np.uint64).astype(np.int64)
        found, place_of = find_rows(numbers, keys)
        rows[left] = np.where(found, place_of, -1)
    return rows


def key_text(key: int) -> str:
    """Return a number of `data.sample_keys` as 16 hexadecimal digits."""
    return f"{key & (2**64 - 1):016x}"


def keys_of_ids(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for each name, the text of a row's `id`, the `key_text`s that the row can have: of the text, and of the
    number where it is one.

    Args:
        names: all different. Those of rows that were named by something else give keys that no row has.
    """
    numbers = [int(name) if _is_number(name) else None for name in names]
    texts = [key_text(key) for key in _keys_of(list(names))]
    of_numbers = iter([key_text(key) for key in _keys_of([number for number in numbers if number is not None])])
    return [
        (text,) if number is None else (text, next(of_numbers)) for text, number in zip(texts, numbers, strict=True)
    ]


def row_labels(dataset: Dataset, column: str) -> list[str | None]:
    """Return N texts, the labels of the rows in a column of any type; None where a row has none.

    A `ClassLabel`, which is a number in the table, gives the name of the class.
    """
    feature, values = dataset.features[column], dataset.with_format(None)[column][:]
    if not isinstance(feature, ClassLabel):
        return [None if value is None else str(value) for value in values]
    # datasets writes -1 for a label that is missing, as in the hidden labels of a test split.
    return [None if value is None or value < 0 else feature.int2str(value) for value in values]


def _is_number(name: str) -> bool:
    """Whether `name` is the text of an int64 as Python writes it."""
    if len(name) > len(str(-(2**63))) or not (name.isascii() and name.removeprefix("-").isdecimal()):
        return False
    return str(int(name)) == name and -(2**63) <= int(name) < 2**63


def _keys_of(ids: list[str] | list[int]) -> list[int]:
    keys: list[int] = sample_keys(Dataset.from_dict({"id": ids}))[0].tolist() if ids else []
    return keys


def _ids(dataset: Dataset) -> list[str | None] | None:
    """The texts of the column `id`, or None where it is missing, of no type that has one, or names a row twice."""
    if "id" not in dataset.column_names:
        return None
    column = dataset.select_columns(["id"]).with_format("arrow")[:]["id"]
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return None
    values = column.to_pylist()
    if len(set(values)) < len(values):
        return None
    return [None if value is None else str(value) for value in values]
