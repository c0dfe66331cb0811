"""Whole numbers worked out of every row, kept in a file for the next start, which all processes of a machine share."""

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
"""Rows at a time. Their images are in memory together where the data set was shuffled or filtered (Arrow copies)."""
PART = 1 << 20
"""Numbers at a time that are hashed."""
LEFT_BEHIND = 3600.0
"""Seconds after which a file that was not moved into its place is taken for that of a process that was ended."""


def row_values(
    dataset: Dataset, values: Iterable[NDArray[np.int64]], *, depends_on: Any, what: str
) -> NDArray[np.int64]:
    """Return (N,) one whole number a row, from the file that an earlier start has left.

    The file lies beside the data set's own files (`Dataset.cache_files`) as `cache-*.npy`, and is found by a digest of
    those files, of `Dataset._fingerprint` and of `depends_on`. It is mapped into memory: read-only, and its pages are
    those of all processes that read it. Where it is damaged it is written anew. There is none for rows that live in
    memory or under `datasets.disable_caching()`, and none is written to a folder that is read-only; then every start
    computes. Processes that compute at the same time write the same file, each as a whole: it is moved into place.

    Args:
        dataset: N rows.
        values: of consecutive rows, N in all. Nothing is asked of it where the file has them.
        depends_on: what else the values follow from; something that `json` can write.
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


def by_batch(
    dataset: Dataset, compute: Callable[[Any, list[int]], NDArray[np.int64]], batch_size: int = BATCH_SIZE
) -> Iterator[NDArray[np.int64]]:
    """Yield the values of consecutive rows, for `row_values`.

    It goes on in this process, since forking one that has threads (of torch, tokenizers, CUDA) may hang.

    Args:
        dataset: N rows, in the format that `compute` takes.
        compute: (a batch of rows, their numbers) to their values. It may have threads of its own.
        batch_size: rows at a time.
    """
    for start, batch in zip(range(0, len(dataset), batch_size), dataset.iter(batch_size), strict=True):
        yield compute(batch, list(range(start, min(start + batch_size, len(dataset)))))


def file_state(name: str) -> tuple[Any, ...]:
    """Name, size and time (ns) of a file; of a missing one its name."""
    try:
        state = os.stat(name)
    except (OSError, ValueError):
        return (name,)
    return (name, state.st_size, state.st_mtime_ns)


def digest_of(values: NDArray[np.int64], digest: Any) -> Any:
    """Feed (N,) `values` to a hash of `hashlib`, a part at a time, and return it."""
    for start in range(0, len(values), PART):
        digest.update(np.ascontiguousarray(values[start : start + PART], dtype="<i8"))
    return digest


def _computed(number: int, values: Iterable[NDArray[np.int64]], what: str) -> NDArray[np.int64]:
    result, done = np.empty(number, dtype=np.int64), 0
    with tqdm(total=number, unit=" examples", desc=what) as bar:
        for part in values:
            result[done : done + len(part)] = part
            done += len(part)
            bar.update(len(part))
    if done != number:
        raise RuntimeError(f"{what}: {done} values came of {number} rows; each row has one. This is a fault here.")
    return result


def _read(path: Path, number: int) -> NDArray[np.int64] | None:
    """The values in a file of `_write`, mapped into memory; None where it is not there or not whole."""
    try:
        stored = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever numpy comes upon in a damaged header: the values are computed again
        logger.warning(f"{path} cannot be read ({type(error).__name__}: {error}); it is made anew.")
        return None
    values = np.asarray(stored)[:-1]
    if stored.dtype != np.dtype("<i8") or stored.shape != (number + 1,) or int(stored[-1]) != _checksum(values):
        logger.warning(f"{path} does not hold {number} numbers with their checksum; it is made anew.")
        return None
    return values


def _write(path: Path, values: NDArray[np.int64]) -> bool:
    """Write (N,) values and their checksum, N + 1 numbers; whether the disk took them."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    header = {"descr": "<i8", "fortran_order": False, "shape": (len(values) + 1,)}
    with suppress(OSError):  # of processes that were ended; another one may be clearing up as well
        for old in path.parent.glob("cache-*.npy.*.tmp"):
            if time.time() - old.stat().st_mtime > LEFT_BEHIND:
                old.unlink()
    try:
        with temporary.open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            values.astype("<i8", copy=False).tofile(file)
            np.array([_checksum(values)], dtype="<i8").tofile(file)
        os.replace(temporary, path)
    except OSError as error:
        logger.warning(f"{path} cannot be written ({error}); the next start computes these values again.")
        return False
    finally:
        with suppress(OSError):  # it is in its place, or never was
            temporary.unlink(missing_ok=True)
    return True


def _checksum(values: NDArray[np.int64]) -> int:
    return int.from_bytes(digest_of(values, hashlib.blake2b(digest_size=8)).digest(), "little", signed=True)
