"""A contender in a process of its own, which does one thing at a time: what it holds and its peaks are its alone."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from .contenders import CONTENDERS
from .evidence import COMPLETIONS


class ContenderError(Exception):
    """A contender could not do what it was asked to: the message says why."""


class Worker:
    """The parent's end: `build` once, then one verb after another.

    A worker is a fresh interpreter, so numpy and torch read the limits on threads from the environment when they load.
    """

    def __init__(self, contender, directory):
        self.directory = Path(directory) / contender.replace(" ", "_")
        self.directory.mkdir()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, contender, self.directory), daemon=True)
        self._process.start()
        theirs.close()  # the worker's end is then open there alone, and its death ends `recv` here

    def ask(self, verb, *arguments):
        """The worker's answer; raises `ContenderError` where it failed, or was killed for want of memory."""
        try:
            self._connection.send((verb, arguments))
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise ContenderError(f"{verb}: the process ended with {self._process.exitcode}") from error
        if "error" in answer:
            raise ContenderError(f"{verb}: {answer['error']}")
        return answer

    def close(self):
        self._connection.close()
        self._process.join(60)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def serve(connection, contender, directory):
    """The worker: answer until the parent closes its end."""
    with contextlib.suppress(OSError):  # should memory run out, a worker goes and not the parent
        Path("/proc/self/oom_score_adj").write_text("1000")
    bench = Bench(contender, directory)
    with contextlib.suppress(EOFError):
        while True:
            verb, arguments = connection.recv()
            try:
                answer = getattr(bench, verb)(*arguments)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            connection.send(answer)


class Bench:
    """Times a contender and looks at the memory of this process."""

    def __init__(self, contender, directory):
        self._make, self._directory, self._state = CONTENDERS[contender], directory, None

    def build(self, num_rows, percent, seed):
        """Build the state, which is not timed."""
        self._warm_up()
        self._before = resident()
        self._state, self._outcomes = self._make(num_rows, percent, seed), np.random.default_rng(seed)
        return {}

    def held(self):
        """What the state adds to the process. Ask after a step: the zeros of a new array are no memory yet."""
        return {"state_bytes": difference(resident(), self._before)}

    def draw(self, k):
        self._rows = None
        answer, self._rows = self._measure(self._state.draw, k)
        return answer

    def observe(self):
        """The rows of the last draw."""
        successes = self._outcomes.binomial(COMPLETIONS, 0.5, self._rows.size)
        return self._measure(self._state.observe, self._rows, successes)[0]

    def save(self):
        answer, _ = self._measure(self._state.save, self._directory)
        return answer | {"file_bytes": sum(path.stat().st_size for path in self._directory.iterdir())}

    def load(self):
        return self._measure(self._state.load, self._directory)[0]

    def _warm_up(self):
        """Every verb once on few rows: what Python loads on first use is not the state's memory."""
        state = self._make(100, 10, 0)
        state.observe(state.draw(10), np.full(10, 4))
        with tempfile.TemporaryDirectory() as directory:
            state.save(Path(directory))
            state.load(Path(directory))

    def _measure(self, verb, *arguments):
        reset_peak()
        start = time.perf_counter()
        result = verb(*arguments)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "peak_bytes": difference(peak(), self._before)}, result


def difference(now, before):
    return None if now is None or before is None else now - before


def resident():
    """Bytes of this process in memory, once what was freed has gone back to the system; None where not known."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def peak():
    """The most bytes in memory since `reset_peak`; None where not known."""
    return _status("VmHWM")


def reset_peak():
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(name):
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def machine():
    """Facts of the machine and the packages, without loading torch."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    facts = {"python": platform.python_version(), "cores": os.cpu_count(), "processor": platform.machine()}
    for package in ("numpy", "torch", "safetensors"):
        with contextlib.suppress(PackageNotFoundError):
            facts[package] = version(package)
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts["processor"] = next(line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    return facts
