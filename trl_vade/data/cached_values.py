"""Whole numbers computed from every row and cached in a file, which all processes of a machine share."""

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, is_caching_enabled
from datasets.utils import tqdm
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

BATCH_SIZE = 128
"""The rows of a batch. Arrow copies the images of a batch into memory if the data set was shuffled or filtered."""
LEFT_BEHIND = 3600.0  # the age in seconds from which a temporary file is deleted as the rest of a killed process


def row_values(
    dataset: Dataset, values: Iterable[NDArray[np.int64]], *, depends_on: Any, what: str
) -> NDArray[np.int64]:
    """Return one whole number a row, (N,), from the cache file, or compute them and write the file.

    The file `cache-*.npy` lies beside the data set's own files (`Dataset.cache_files`). Its name is a digest of those
    files, `Dataset._fingerprint` and `depends_on`. It is memory-mapped, read-only and shared by all processes. A
    damaged file is replaced. Without cache files of the data set, under `datasets.disable_caching()`, or in a
    read-only folder every start computes the values. Several processes may write it at once, each atomically.

    Args:
        dataset: the N rows.
        values: the values of consecutive rows, N in all; read only without a cache file.
        depends_on: everything else that determines the values, as JSON values.
        what: the title of the progress bar.
    """
    if not len(dataset):
        return np.empty(0, dtype=np.int64)
    files = [file["filename"] for file in dataset.cache_files]
    if not files or not is_caching_enabled():
        return _computed(len(dataset), values, what)
    state = [dataset._fingerprint, *map(file_state, files), depends_on]
    digest = hashlib.blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()
    folder = os.path.dirname(files[0])
    path = Path(folder, f"cache-{digest}.npy")
    kept = _read(path, len(dataset))
    if kept is None:
        kept = _computed(len(dataset), values, what)
        if os.access(folder, os.W_OK) and _write(path, kept):
            written = _read(path, len(dataset))
            kept = kept if written is None else written
    return kept


def by_batch(dataset: Dataset, compute: Callable[[Any, list[int]], NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Yield the values of consecutive batches of rows, for `row_values`.

    This process computes them, because a fork with threads (of torch, tokenizers, CUDA) may hang. `compute` gets a
    batch in the format of the data set and the numbers of its rows; it may use threads.
    """
    for start, batch in zip(range(0, len(dataset), BATCH_SIZE), dataset.iter(BATCH_SIZE), strict=True):
        yield compute(batch, list(range(start, min(start + BATCH_SIZE, len(dataset)))))


def file_state(name: str) -> tuple[Any, ...]:
    """Return the name, size (bytes) and modification time (ns) of a file, or only the name if it is missing."""
    try:
        state = os.stat(name)
    except (OSError, ValueError):
        return (name,)
    return (name, state.st_size, state.st_mtime_ns)


def _computed(number: int, values: Iterable[NDArray[np.int64]], what: str) -> NDArray[np.int64]:
    result, done = np.empty(number, dtype=np.int64), 0
    with tqdm(total=number, unit=" examples", desc=what) as bar:
        for part in values:
            result[done : done + len(part)] = part
            done += len(part)
            bar.update(len(part))
    if done != number:
        raise RuntimeError(f"{what}: {number} rows gave {done} values instead of one each. This is a bug in trl_vade.")
    return result


def _read(path: Path, number: int) -> NDArray[np.int64] | None:
    """Return the memory-mapped values of a file of `_write`, or None if it is missing or damaged."""
    if not path.exists():
        return None
    try:
        stored = np.lib.format.open_memmap(path, mode="r")
        values = np.asarray(stored)[:-1]
        if stored.dtype != np.dtype("<i8") or stored.shape != (number + 1,) or int(stored[-1]) != _checksum(values):
            raise ValueError(f"it does not hold {number} numbers and their checksum")
    except Exception as error:  # numpy raises various errors for a damaged header
        logger.warning(f"{path} cannot be read ({type(error).__name__}: {error}). It is computed again.")
        return None
    return values


def _write(path: Path, values: NDArray[np.int64]) -> bool:
    """Write the values, (N,), and their checksum; return whether the disk accepted them."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")  # several processes may write at once
    with suppress(OSError):  # another process may delete the files of killed processes at the same time
        for old in path.parent.glob("cache-*.npy.*.tmp"):
            if time.time() - old.stat().st_mtime > LEFT_BEHIND:
                old.unlink()
    try:
        with temporary.open("xb") as file:
            np.save(file, np.append(values, np.int64(_checksum(values))).astype("<i8", copy=False))
        os.replace(temporary, path)
    except OSError as error:
        logger.warning(f"{path} cannot be written ({error}). The next start computes these values again.")
        return False
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


def _checksum(values: NDArray[np.int64]) -> int:
    digest = hashlib.blake2b(values.astype("<i8", copy=False), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
