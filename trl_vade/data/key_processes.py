"""Processes that hash rows. Threads would not help, because hashing text in Python holds the GIL.

They are plain subprocesses. A fork of a process with threads may hang. multiprocessing's spawn would run a training
script without `if __name__ == "__main__"` again.
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
"""The smallest number of rows for processes. On two processors they pay off from 50,000 to 100,000 rows on."""


def number_of_workers(num_rows: int) -> int:
    """Return the number of processes for so many rows; 0 if this process hashes them.

    The cores are shared with the other training processes of this machine, which may hash at the same time.
    """
    if num_rows < FEWEST_ROWS:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = min(cores // max(1, int(local) if local.isdecimal() else 1), MOST_WORKERS)
    return share if share > 1 else 0


def keys_of_tables(tables: Iterable[pa.Table], workers: int) -> Iterator[NDArray[np.int64]]:
    """Yield the `key_hashing.row_key` of the rows of each table, in order.

    Args:
        tables: parts of one table without images.
        workers: the number of processes; 0 stands for this process.

    Raises:
        RuntimeError: a process could not be started, or has ended.
    """
    if not workers:
        yield from (keys_of_columns(table.to_pydict()) for table in tables)
        return
    with ExitStack() as stack:
        idle: queue.SimpleQueue[KeyWorker] = queue.SimpleQueue()
        for _ in range(workers):
            idle.put(stack.enter_context(KeyWorker()))
        threads = stack.enter_context(ThreadPoolExecutor(workers))  # they wait for the processes

        def ask(table: pa.Table) -> NDArray[np.int64]:
            worker = idle.get()
            try:
                return worker.keys_of(table)
            finally:
                idle.put(worker)  # also a worker that has ended, or the next caller would wait forever

        asked: deque[Future[NDArray[np.int64]]] = deque()
        for table in tables:
            asked.append(threads.submit(ask, table))
            if len(asked) > 2 * workers:  # limits the tables in memory
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


class KeyWorker:
    """A context manager for one process of `key_hashing`."""

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
            with suppress(BrokenPipeError):  # from unflushed data
                pipe.close()

    def keys_of(self, table: pa.Table) -> NDArray[np.int64]:
        """Return the keys of the rows, (N,). Only one thread may call this at a time.

        Raises:
            RuntimeError: the process has ended.
        """
        keys = [np.empty(0, dtype="<i8")]
        try:
            if self._stream is None:
                said = self._process.stdout.readline()
                if said != READY:
                    raise _ended(f"printed {said!r} in place of {READY!r}", self._process)
                self._stream = pa.ipc.new_stream(self._process.stdin, table.schema)
            for batch in table.combine_chunks().to_batches():
                # Each answer is read at once. Unread answers could fill the pipe, and both sides would wait forever.
                self._stream.write_batch(batch)
                self._process.stdin.flush()
                answer = self._process.stdout.read(8 * batch.num_rows)
                if len(answer) < 8 * batch.num_rows:
                    raise _ended(f"answered {batch.num_rows} rows with {len(answer)} bytes", self._process)
                keys.append(np.frombuffer(answer, dtype="<i8"))
        except (BrokenPipeError, pa.ArrowInvalid) as error:
            raise _ended(f"accepts no more rows ({error})", self._process) from error
        return np.concatenate(keys).astype(np.int64)


def _ended(what: str, process: Any) -> RuntimeError:
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)  # it closes its pipes first
    return RuntimeError(
        f"A process that hashes the rows (trl_vade.data.key_hashing) {what}; its exit code is {process.returncode} "
        "(negative: a signal). It must answer each batch of rows. Its output is above. Signal 9 usually means that "
        "memory ran out: free some and start again. No keys of this run were saved."
    )
