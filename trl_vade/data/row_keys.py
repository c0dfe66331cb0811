"""Rows of a training set: tickets in their place, their lists of images, their identity."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray

from trl_vade.checks import IntArray

from .cached_values import by_batch, digest_of, row_values
from .key_hashing import keys_of_columns, row_key
from .key_processes import keys_of_tables, number_of_workers
from .stored_images import THREADS, image_files, may_hold_images, with_buffers


def find_rows(saved_key: IntArray, sample_key: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
    """Look each of the V saved keys up among the N keys of a data set, all different.

    Returns:
        Whether it is there, (V,), and its row, (V,), which means nothing where it is not.
    """
    order = np.argsort(sample_key)
    position = np.minimum(np.searchsorted(sample_key[order], saved_key), len(sample_key) - 1)
    rows = order[position]
    return sample_key[rows] == saved_key, rows


ROWS_OF_A_TASK = 16
"""Of a thread, of the rows of a batch."""
ROWS_OF_TEXT = 4096
"""Of a batch that holds no images, and goes to a process."""
KEYS_VERSION = 1
"""Of the numbers that `sample_keys` makes of a row's content; part of the name of their cache file."""


def sample_keys(dataset: Dataset) -> tuple[NDArray[np.int64], int]:
    """Return (N,) numbers that stay with their rows when rows come, go or move, and how many rows are copies.

    A number is 64 bits of a hash of the row's `id` where that column holds a different value for each row, else of its
    prompt and its images (the bytes of their files, not decoded; an `id` column spares reading them). Rows that share
    these, or whose prompt an environment writes, have a hash of all their columns. `row_values` keeps the numbers;
    they are not to be written into. Rows that equal an earlier one in all columns are copies, told apart by order.
    """
    if "id" in dataset.column_names:
        keys = id_keys(dataset)
        if all_different(keys):
            return keys, 0
    content = [name for name in ("prompt", "image", "images") if name in dataset.column_names]
    keys = _content_keys(dataset, content) if content else _whole_keys(dataset)
    alike = _alike(keys)
    if len(alike) and 0 < len(content) < len(dataset.column_names):
        keys = np.array(keys)
        keys[alike] = _whole_keys(dataset.select(alike))
    return _with_copies_apart(keys) if len(alike) else (keys, 0)


def id_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Return (N,) a hash of each row's `id`, equal where the ids are."""
    return _text_keys(dataset, ["id"], image_files(dataset, ["id"]))


def all_different(keys: NDArray[np.int64]) -> bool:
    """Whether no two of (N,) numbers are equal."""
    ordered = np.sort(keys)
    return not (ordered[1:] == ordered[:-1]).any()


def dataset_fingerprint(keys: NDArray[np.int64]) -> str:
    """sha256 over the `sample_keys` of a data set, in order.

    Not `datasets`' own fingerprint: that one names the steps by which a table was made, and changes when the same
    rows are loaded in another way.
    """
    fingerprint: str = digest_of(keys, hashlib.sha256()).hexdigest()
    return fingerprint


def _with_copies_apart(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """(N,) keys with another one for each but the first of those that are equal, and how many got one."""
    rows, apart, seen = _alike(keys), np.array(keys), Counter[int]()
    for row, key in zip(rows.tolist(), keys[rows].tolist(), strict=True):
        if seen[key]:
            apart[row] = row_key({"copy": seen[key], "of": key})
        seen[key] += 1
    return apart, len(rows) - len(seen)


def _alike(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows whose key another one has, too, in ascending order."""
    ordered = np.sort(keys)
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return shared
    place = np.minimum(np.searchsorted(shared, keys), len(shared) - 1)
    return np.flatnonzero(shared[place] == keys)


def _content_keys(dataset: Dataset, columns: list[str]) -> NDArray[np.int64]:
    files = image_files(dataset, columns)
    if not any(may_hold_images(kind) for kind in dataset.data.select(columns).schema.types):
        return _text_keys(dataset, columns, files)
    rows = dataset.select_columns(columns).with_format("arrow")
    return row_values(rows, _image_keys(rows), depends_on=_state(columns, files), what="Hashing the rows")


def _whole_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Of all columns; the complement, so that none is the key of an `id`."""
    return ~_content_keys(dataset, dataset.column_names)


def _text_keys(dataset: Dataset, columns: list[str], files: list[tuple[Any, ...]]) -> NDArray[np.int64]:
    """The keys of rows of which these columns count, which hold no images: texts, or ids of whatever type."""
    rows = dataset.select_columns(columns).with_format("arrow")
    plain = not any(may_hold_images(kind) for kind in dataset.data.select(columns).schema.types)
    workers = number_of_workers(len(rows)) if plain else 0
    keys = keys_of_tables(rows.iter(ROWS_OF_TEXT), workers)
    return row_values(rows, keys, depends_on=_state(columns, files), what="Hashing the rows")


def _image_keys(rows: Dataset) -> Iterator[NDArray[np.int64]]:
    with ThreadPoolExecutor(THREADS) as pool:

        def compute(batch: pa.Table, numbers: list[int]) -> NDArray[np.int64]:
            parts = [batch.slice(i, ROWS_OF_A_TASK) for i in range(0, len(numbers), ROWS_OF_A_TASK)]
            return np.concatenate(list(pool.map(_keys_of_table, parts)))

        yield from by_batch(rows, compute)


def _keys_of_table(table: pa.Table) -> NDArray[np.int64]:
    columns = [[with_buffers(scalar) for scalar in column] for column in table.columns]
    return keys_of_columns(dict(zip(table.column_names, columns, strict=True)))


def _state(columns: list[str], files: list[tuple[Any, ...]]) -> dict[str, Any]:
    return {"keys": KEYS_VERSION, "columns": columns, "files": files}


def why_not_loaded(error: Exception) -> str:
    """What `datasets` says of rows that it cannot load, in one line.

    datasets 5.2 says "An error occurred while generating the dataset", and its cause what happened.
    """
    reason = (isinstance(error, DatasetGenerationError) and error.__cause__) or error
    return " ".join(str(reason).split())
