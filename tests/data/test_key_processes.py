"""Rows hashed by processes: the same numbers in the same order, and an error where one of them ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.refusals import refused
from trl_vade.data import key_processes
from trl_vade.data.key_hashing import row_key
from trl_vade.data.key_processes import FEWEST_ROWS, MOST_WORKERS, KeyWorker, keys_of_tables, number_of_workers


def tables(number, rows=3000):
    """Tables of prompts in several parts each, with an image of nobody and a field that only some have."""
    for start in range(0, number * rows, rows):
        prompts = [[{"role": "user", "content": f"{i}?" * (i % 7)}] for i in range(start, start + rows)]
        names = [None if i % 3 else f"ü{i}" for i in range(start, start + rows)]
        whole = pa.table({"prompt": prompts, "name": names})
        yield pa.concat_tables([whole.slice(0, 10), whole.slice(10)])


def test_processes_give_the_numbers_that_this_one_gives_in_order(monkeypatch):
    expected = [row_key(row) for table in tables(9) for row in table.to_pylist()]
    assert np.concatenate(list(keys_of_tables(tables(9), 0))).tolist() == expected
    started, start = [], KeyWorker.__init__
    monkeypatch.setattr(KeyWorker, "__init__", lambda worker: started.append(worker) or start(worker))
    keys = list(keys_of_tables(tables(9), 2))
    assert np.concatenate(keys).tolist() == expected
    assert {part.dtype for part in keys} == {np.dtype(np.int64)}
    assert [worker._process.returncode for worker in started] == [-signal.SIGKILL] * 2  # they have gone with the rows


@pytest.mark.parametrize("after", [0, 3])
def test_a_process_that_is_ended_is_an_error_and_no_wait(monkeypatch, after):
    def killing():
        for number, table in enumerate(tables(9)):
            if number == after:
                for worker in workers:
                    worker._process.send_signal(signal.SIGKILL)
            yield table

    workers, start = [], KeyWorker.__init__
    monkeypatch.setattr(KeyWorker, "__init__", lambda worker: workers.append(worker) or start(worker))
    with refused(RuntimeError, ["trl_vade.data.key_hashing", "-9", "memory"]):
        list(keys_of_tables(killing(), 2))
    assert all(worker._process.poll() is not None for worker in workers)


def test_a_process_that_does_not_start_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    with refused(RuntimeError, [r"b'-m trl_vade.data.key_hashing\n'", "0"]):
        list(keys_of_tables(tables(1), 1))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_ends_with_the_one_that_started_it():
    code = (
        "import pyarrow as pa; from trl_vade.data.key_processes import KeyWorker; worker = KeyWorker();"
        "worker.keys_of(pa.table({'id': ['a']})); print(worker._process.pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    os.kill(worker, 0)
    parent.kill()  # it has no chance to say goodbye
    parent.communicate()
    state, stat = "R", Path(f"/proc/{worker}/stat")
    for _ in range(1000):
        state = stat.read_text().rsplit(")", 1)[1].split()[0] if stat.exists() else "gone"
        if state in ("Z", "X", "gone"):  # or nobody has asked for its exit code yet
            break
        time.sleep(0.01)
    assert state in ("Z", "X", "gone")


def test_processes_are_for_many_rows_and_share_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(24)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert number_of_workers(FEWEST_ROWS - 1) == 0
    assert number_of_workers(FEWEST_ROWS) == MOST_WORKERS == key_processes.MOST_WORKERS
    for processes, workers in (("8", 3), ("3", 8), ("24", 0), ("100", 0), ("0", 16), ("many", 16)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert number_of_workers(FEWEST_ROWS) == workers
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert number_of_workers(FEWEST_ROWS) == 0
