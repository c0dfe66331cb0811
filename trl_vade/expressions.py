"""Whether two expressions are equal, decided by math-verify in a process of its own under limits."""

import atexit
import functools
import importlib.util
import json
import os
import subprocess
import sys
import threading

from .errors import ConfigurationError


class ExpressionJudge:
    """Asks `expression_worker`, started with the first question; threads take turns.

    Attributes:
        ended: how many pairs came to their limit of time or memory.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def are_equal(self, reference: str, answer: str) -> bool:
        """Whether the two are mathematically equal; False where that is not found out within the limits.

        Raises:
            ConfigurationError: math-verify is not installed, or its process cannot be started here.
        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps([reference, answer]) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (BrokenPipeError, KeyboardInterrupt):
                line = ""
                self._end(process)
                raise
            if not line:
                self._end(process)
                raise RuntimeError("trl_vade.expression_worker ended without an answer: see what it wrote above.")
            verdict = json.loads(line)
            self.ended += verdict is None
            return bool(verdict)

    def close(self) -> None:
        """End the process, if there is one of this process's own."""
        if self._process is not None and self._owner == os.getpid():
            self._end(self._process)

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._owner != os.getpid():  # a forked process has pipes that belong to another
            self._process, self._owner = start_worker(), os.getpid()
        return self._process

    def _end(self, process: "subprocess.Popen[str]") -> None:
        self._process = None
        process.kill()
        process.communicate()


def start_worker() -> "subprocess.Popen[str]":
    """Start the worker and wait until its parser is loaded."""
    if importlib.util.find_spec("math_verify") is None or not hasattr(os, "fork"):
        raise ConfigurationError(
            "An answer of type 'expression' has to be compared, which math-verify does, in a process that can be "
            f"ended: it is not installed, or this system ({sys.platform}) cannot fork. Install it with "
            'pip install "trl-vade[rewards]" on Linux or macOS, or leave rows of that type out.'
        )
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.expression_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        process.kill()
        raise ConfigurationError(
            "The process that compares expressions (trl_vade.expression_worker) did not start; what it wrote is "
            'above. Is math-verify whole? pip install --force-reinstall "trl-vade[rewards]"'
        )
    return process


JUDGE = ExpressionJudge()
atexit.register(JUDGE.close)


@functools.lru_cache(maxsize=50_000)
def equal_expressions(reference: str, answer: str) -> bool:
    """`ExpressionJudge.are_equal`, asked once for a pair: the answers of a group are often the same."""
    return JUDGE.are_equal(reference, answer)
