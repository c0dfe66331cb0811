"""Whole numbers computed from every row by `Dataset.map`, which keeps them in a file beside the data set's own."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, Value
from numpy.typing import NDArray

from .decoding import media_of

THREADS = 8  # that read or hash images in one process; reading waits for the disk, and hashing releases the GIL


def row_values(
    dataset: Dataset, compute: Callable[[pa.Table, list[int]], Any], *, depends_on: Any, what: str, batch_size: int
) -> NDArray[np.int64]:
    """Return one whole number a row, (N,), from the cache of `datasets` (none for rows in memory), or compute them.

    `compute` gets the Arrow table of `batch_size` rows and their numbers. It runs in this process, because a fork with
    threads may hang. `depends_on` is, as JSON values, what else determines the values. `what` titles the progress bar.
    """
    if not len(dataset):
        return np.empty(0, dtype=np.int64)
    # Not the fingerprint of `datasets`, which pickles `compute`: that differs between starts, and omits image files.
    state = json.dumps([dataset._fingerprint, _image_files(dataset), depends_on])
    folders = [os.path.dirname(file["filename"]) for file in dataset.cache_files]
    mapped = dataset.with_format("arrow").map(
        lambda table, numbers: {"value": compute(table, numbers)},
        batched=True,
        batch_size=batch_size,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features({"value": Value("int64")}),
        new_fingerprint=hashlib.blake2b(state.encode(), digest_size=16).hexdigest(),
        keep_in_memory=bool(folders) and not os.access(folders[0], os.W_OK),
        desc=what,
    )
    values: NDArray[np.int64] = mapped.data.column("value").to_numpy()
    return values


def holds_images(dataset: Dataset) -> bool:
    """Return whether a column of the data set can contain images, decoded or not."""
    return any(isinstance(feature, Image) for feature in media_of(dict(dataset.features)))


def _image_files(dataset: Dataset) -> list[tuple[Any, ...]]:
    names = sorted({name for each in dataset.data.columns for name in _named(each)}) if holds_images(dataset) else []
    with ThreadPoolExecutor(THREADS) as pool:  # for network disks
        return list(pool.map(_file_state, names))


def _file_state(name: str) -> tuple[Any, ...]:
    try:
        state = os.stat(name)
    except (OSError, ValueError):
        return (name,)
    return (name, state.st_size, state.st_mtime_ns)


def _named(array: pa.Array | pa.ChunkedArray) -> Iterator[str]:
    """Yield the names of the image files that `array` refers to without their bytes."""
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from _named(chunk)
    elif pa.types.is_struct(array.type):
        fields = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        if fields.keys() == {"bytes", "path"}:
            yield from fields["path"].filter(fields["bytes"].is_null()).drop_null().to_pylist()
        else:
            for field in fields.values():
                yield from _named(field)
    elif pa.types.is_nested(array.type) and hasattr(array, "flatten"):
        yield from _named(array.flatten())
