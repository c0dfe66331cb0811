"""The identity of training rows: keys, copies and the fingerprint of a data set."""

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray

from trl_vade.checks import IntArray

from .cached_values import THREADS, holds_images, row_values

CONTENT = ("prompt", "image", "images")  # the columns that TRL makes a prompt of
_encode = json.JSONEncoder(default=repr, sort_keys=True).encode


def keys_of_columns(columns: dict[str, list[Any]]) -> NDArray[np.int64]:
    """Return a 64-bit hash of each row as JSON, (N,). Saved posteriors hold these keys: they must never change."""
    names = sorted(columns)
    labels = [f"{_encode(name)}: " for name in names]  # field by field is faster than the whole row
    digests = []
    for row in zip(*(columns[name] for name in names), strict=True):
        fields = zip(labels, row, strict=True)
        text = ", ".join([label + _encode(_identity(value)) for label, value in fields if value is not None])
        digests.append(hashlib.blake2b(f"{{{text}}}".encode(), digest_size=8).digest())
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def _identity(value: Any) -> Any:
    """Return `value` with a digest in place of each image, without the empty fields that Arrow adds to all rows."""
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"}:
            content, path = value["bytes"], value["path"]
            if content is None and path is not None:
                content = Path(path).read_bytes() if Path(path).is_file() else path.encode()
            return hashlib.blake2b(content or b"").hexdigest()
        return {name: _identity(part) for name, part in value.items() if part is not None}
    return [_identity(part) for part in value] if isinstance(value, list) else value


def find_rows(saved_key: IntArray, sample_key: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
    """Return which of V saved keys are among N distinct ones, (V,), and their rows, (V,), valid where found."""
    order = np.argsort(sample_key)
    position = np.minimum(np.searchsorted(sample_key[order], saved_key), len(sample_key) - 1)
    rows = order[position]
    return sample_key[rows] == saved_key, rows


def sample_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Return a key of each row, (N,) int64, cached by `row_values` and read-only.

    A key stays with its row when rows are added, dropped or reordered. It is a hash of the row's `id` if that column
    has a different value in each row. Otherwise it is a hash of the prompt and the bytes of the image files; an `id`
    column saves reading these. Rows that share a prompt and images, or have no prompt column, use all columns. Rows
    that equal an earlier row in all columns are copies and are distinguished by their order.
    """
    if "id" in dataset.column_names and not len(_alike(keys := content_keys(dataset, ["id"]))):
        return keys
    every, content = dataset.column_names, [name for name in CONTENT if name in dataset.column_names]
    # The keys of all columns are complements, so that none equals the key of an `id`.
    keys = content_keys(dataset, content) if content else ~content_keys(dataset, every)
    alike = _alike(keys)
    if not len(alike):
        return keys
    keys, seen = np.array(keys), Counter[int]()
    if 0 < len(content) < len(every):
        keys[alike] = ~content_keys(dataset.select(alike), every)
    copies = _alike(keys)
    for row, key in zip(copies.tolist(), keys[copies].tolist(), strict=True):
        if seen[key]:  # all copies but the first
            [keys[row]] = keys_of_columns({"copy": [seen[key]], "of": [key]})
        seen[key] += 1
    return keys


def dataset_fingerprint(keys: NDArray[np.int64]) -> str:
    """Return the SHA-256 of the `sample_keys` of a data set, in order; unlike that of `datasets` it is of the rows."""
    return hashlib.sha256(np.ascontiguousarray(keys, dtype="<i8")).hexdigest()


def _alike(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    ordered = np.sort(keys)
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return shared
    place = np.minimum(np.searchsorted(shared, keys), len(shared) - 1)
    return np.flatnonzero(shared[place] == keys)


def content_keys(dataset: Dataset, columns: list[str]) -> NDArray[np.int64]:
    """Return a hash of each row's values in `columns`, (N,), the bytes of image files in place of their names."""
    rows = dataset.select_columns(columns)
    images = holds_images(rows)
    with ThreadPoolExecutor(THREADS) as pool:

        def hashed(table: pa.Table, numbers: list[int]) -> NDArray[np.int64]:
            # Two threads hash texts no faster than one.
            parts = [table.slice(i, 16) for i in range(0, len(numbers), 16)] if images else [table]
            return np.concatenate([*pool.map(lambda part: keys_of_columns(part.to_pydict()), parts)])

        size = 128 if images else 4096
        return row_values(rows, hashed, depends_on={"keys": 2}, what="Hashing the rows", batch_size=size)
