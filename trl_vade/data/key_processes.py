"""Rows hashed by several processes: Python's hashing of text holds the GIL, so threads would not help.

They are plain subprocesses. A fork of a process that has threads may hang, and multiprocessing's spawn would run a
training script again that has no `if __name__ == "__main__"`.
"""

import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .key_hashing import READY, keys_of_columns

MOST_WORKERS = 16
FEWEST_ROWS = 100_000
"""From here on processes are worth their start. Measured on two processors: so are they from 50,000 to 100,000 on."""


def number_of_workers(num_rows: int) -> int:
    """How many processes hash so many rows; 0: this one does it.

    The processors are shared with the training processes of this machine that torchrun or accelerate started, since
    they may all be at it.
    """
    if num_rows < FEWEST_ROWS:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = min(cores // max(1, int(local) if local.isdecimal() else 1), MOST_WORKERS)
    return share if share > 1 else 0


def keys_of_tables(tables: Iterable[pa.Table], workers: int) -> Iterator[NDArray[np.int64]]:
    """Yield the `key_hashing.row_key` of each row, a table at a time and in order. They hold no images.

    Args:
        tables: parts of one table.
        workers: processes; 0: this one does it.

    Raises:
        RuntimeError: a process could not be started, or was ended.
    """
    if not workers:
        yield from (keys_of_columns(table.to_pydict()) for table in tables)
        return
    with ExitStack() as stack:
        idle: queue.SimpleQueue[KeyWorker] = queue.SimpleQueue()
        for _ in range(workers):
            idle.put(stack.enter_context(KeyWorker()))
        threads = stack.enter_context(ThreadPoolExecutor(workers))  # which wait for the processes

        def ask(table: pa.Table) -> NDArray[np.int64]:
            worker = idle.get()
            try:
                return worker.keys_of(table)
            finally:
                idle.put(worker)  # also one that has ended: the next to ask it must not wait for ever

        asked: deque[Future[NDArray[np.int64]]] = deque()
        for table in tables:
            asked.append(threads.submit(ask, table))
            if len(asked) > 2 * workers:  # so few tables are in memory at a time
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


class KeyWorker:
    """A process of `key_hashing`, which ends with the block that it is entered for."""

    def __init__(self) -> None:
        self._process: Any = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.key_hashing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._stream: Any = None

    def __enter__(self) -> "KeyWorker":
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # what was not flushed
                pipe.close()

    def keys_of(self, table: pa.Table) -> NDArray[np.int64]:
        """Return (N,) the keys of the rows. One thread at a time.

        Raises:
            RuntimeError: the process has ended.
        """
        keys = [np.empty(0, dtype="<i8")]
        try:
            if self._stream is None:
                said = self._process.stdout.readline()
                if said != READY:
                    raise _ended(f"said {said!r}, and is to say {READY!r} first", self._process)
                self._stream = pa.ipc.new_stream(self._process.stdin, table.schema)
            for batch in table.combine_chunks().to_batches():
                # An answer for each batch: both would wait for ever with answers enough to fill the pipe.
                self._stream.write_batch(batch)
                self._process.stdin.flush()
                answer = self._process.stdout.read(8 * batch.num_rows)
                if len(answer) < 8 * batch.num_rows:
                    raise _ended(f"answered {batch.num_rows} rows by {len(answer)} bytes", self._process)
                keys.append(np.frombuffer(answer, dtype="<i8"))
        except (BrokenPipeError, pa.ArrowInvalid) as error:
            raise _ended(f"takes no more rows ({error})", self._process) from error
        return np.concatenate(keys).astype(np.int64)


def _ended(what: str, process: Any) -> RuntimeError:
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)  # it closes its pipes first
    return RuntimeError(
        f"A process that hashes the rows (trl_vade.data.key_hashing) {what}; its exit code is {process.returncode} "
        "(negative: the signal that ended it). It has to answer each batch of rows, since a row without a key has no "
        "identity. What it wrote is above. Signal 9 is mostly want of memory: free some, and start again. Nothing of "
        "this pass over the rows was kept."
    )
