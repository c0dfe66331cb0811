"""The identity of training rows: keys, copies and the fingerprint of a data set."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray

from trl_vade.checks import IntArray

from .cached_values import by_batch, row_values
from .stored_images import THREADS, image_files, may_hold_images, with_buffers

_encode = json.JSONEncoder(default=repr, sort_keys=True).encode


def row_key(row: dict[str, Any]) -> int:
    """Return a signed 64-bit hash of `row` as JSON. Saved posteriors hold these keys, so they must never change."""
    digest = _digest((_label(name), row[name]) for name in sorted(row))
    return int.from_bytes(digest, "little", signed=True)


def keys_of_columns(columns: dict[str, list[Any]]) -> NDArray[np.int64]:
    """Return the `row_key` of each row, (N,), from at least one column of N values."""
    names = sorted(columns)
    labels, values = [_label(name) for name in names], [columns[name] for name in names]
    digests = [_digest(zip(labels, row, strict=True)) for row in zip(*values, strict=True)]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def identity(value: Any) -> Any:
    """Return `value` with a digest in place of each image, so that a moved file is the same image.

    Fields without a value are left out, because Arrow adds a field to all rows if one row has it.
    """
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"}:
            content, path = value["bytes"], value["path"]
            if content is None and path is not None:
                content = Path(path).read_bytes() if Path(path).is_file() else path.encode()
            return hashlib.blake2b(content or b"").hexdigest()
        return {name: identity(part) for name, part in value.items() if part is not None}
    return [identity(part) for part in value] if isinstance(value, list) else value


def _label(name: str) -> str:
    return f"{_encode(name)}: "


def _digest(fields: Iterable[tuple[str, Any]]) -> bytes:
    """Return the digest of the row's JSON. Encoding field by field is faster than encoding the whole row."""
    text = ", ".join([label + _encode(identity(value)) for label, value in fields if value is not None])
    return hashlib.blake2b(f"{{{text}}}".encode(), digest_size=8).digest()


def find_rows(saved_key: IntArray, sample_key: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
    """Look up V saved keys among the N distinct keys of a data set.

    Returns a mask of the keys found, (V,), and their rows, (V,), which are valid only where the mask is True.
    """
    order = np.argsort(sample_key)
    position = np.minimum(np.searchsorted(sample_key[order], saved_key), len(sample_key) - 1)
    rows = order[position]
    return sample_key[rows] == saved_key, rows


ROWS_OF_A_TASK = 16  # the rows of a batch that one thread hashes at a time
ROWS_OF_TEXT = 4096  # the rows of a batch without images
KEYS_VERSION = 1  # the version of the keys, part of the digest of their cache file


def sample_keys(dataset: Dataset) -> tuple[NDArray[np.int64], int]:
    """Return a key of each row, (N,) int64, cached by `row_values` and read-only, and the number of copies.

    A key stays with its row when rows are added, dropped or reordered. It is a hash of the row's `id` if that column
    has a different value in each row. Otherwise it is a hash of the prompt and the bytes of the image files; an `id`
    column saves reading these. Rows that share a prompt and images, or have no prompt column, use all columns. Rows
    that equal an earlier row in all columns are copies and are distinguished by their order.
    """
    if "id" in dataset.column_names:
        keys = id_keys(dataset)
        if all_different(keys):
            return keys, 0
    content = [name for name in ("prompt", "image", "images") if name in dataset.column_names]
    keys = content_keys(dataset, content) if content else _whole_keys(dataset)
    alike = _alike(keys)
    if len(alike) and 0 < len(content) < len(dataset.column_names):
        keys = np.array(keys)
        keys[alike] = _whole_keys(dataset.select(alike))
    return _with_copies_apart(keys) if len(alike) else (keys, 0)


def id_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Return a hash of each row's `id`, (N,); equal ids have equal hashes."""
    return _keys_of(dataset, ["id"], _text_keys)


def all_different(keys: NDArray[np.int64]) -> bool:
    """Return whether no two of the numbers, (N,), are equal."""
    ordered = np.sort(keys)
    return not (ordered[1:] == ordered[:-1]).any()


def dataset_fingerprint(keys: NDArray[np.int64]) -> str:
    """Return the SHA-256 of the `sample_keys` of a data set, in order.

    The fingerprint of `datasets` describes how a table was made, and changes when the same rows are loaded in another
    way. This one does not.
    """
    return hashlib.sha256(np.ascontiguousarray(keys, dtype="<i8")).hexdigest()


def _with_copies_apart(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Replace the keys of all copies but the first; return the keys, (N,), and the number of copies."""
    rows, apart, seen = _alike(keys), np.array(keys), Counter[int]()
    for row, key in zip(rows.tolist(), keys[rows].tolist(), strict=True):
        if seen[key]:
            apart[row] = row_key({"copy": seen[key], "of": key})
        seen[key] += 1
    return apart, len(rows) - len(seen)


def _alike(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    ordered = np.sort(keys)
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return shared
    place = np.minimum(np.searchsorted(shared, keys), len(shared) - 1)
    return np.flatnonzero(shared[place] == keys)


def content_keys(dataset: Dataset, columns: list[str]) -> NDArray[np.int64]:
    """Return a hash of each row's values in `columns`, (N,), the bytes of image files in place of their names."""
    images = any(may_hold_images(kind) for kind in dataset.data.select(columns).schema.types)
    return _keys_of(dataset, columns, _image_keys if images else _text_keys)


def _whole_keys(dataset: Dataset) -> NDArray[np.int64]:
    """Return keys of all columns, as complements, so that none equals the key of an `id`."""
    return ~content_keys(dataset, dataset.column_names)


def _keys_of(
    dataset: Dataset, columns: list[str], hashed: Callable[[Dataset], Iterable[NDArray[np.int64]]]
) -> NDArray[np.int64]:
    rows = dataset.select_columns(columns).with_format("arrow")
    depends_on = {"keys": KEYS_VERSION, "columns": columns, "files": image_files(dataset, columns)}
    return row_values(rows, hashed(rows), depends_on=depends_on, what="Hashing the rows")


def _text_keys(rows: Dataset) -> Iterator[NDArray[np.int64]]:
    """Yield keys of texts, or of ids of any type. Two processes hash no faster (`eval/LOG.md`)."""
    return (keys_of_columns(batch.to_pydict()) for batch in rows.iter(ROWS_OF_TEXT))


def _image_keys(rows: Dataset) -> Iterator[NDArray[np.int64]]:
    with ThreadPoolExecutor(THREADS) as pool:

        def compute(batch: pa.Table, numbers: list[int]) -> NDArray[np.int64]:
            parts = [batch.slice(i, ROWS_OF_A_TASK) for i in range(0, len(numbers), ROWS_OF_A_TASK)]
            return np.concatenate(list(pool.map(_keys_of_table, parts)))

        yield from by_batch(rows, compute)


def _keys_of_table(table: pa.Table) -> NDArray[np.int64]:
    columns = [[with_buffers(scalar) for scalar in column] for column in table.columns]
    return keys_of_columns(dict(zip(table.column_names, columns, strict=True)))


def why_not_loaded(error: Exception) -> str:
    """Return the reason of an error of `datasets` in one line; datasets 5.2 hides it in the cause."""
    reason = (isinstance(error, DatasetGenerationError) and error.__cause__) or error
    return " ".join(str(reason).split())
