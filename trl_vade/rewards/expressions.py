"""Whether two expressions are equal, decided by math-verify in a process of its own under limits."""

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import subprocess
import sys
import threading
from typing import Any

from trl_vade.errors import ConfigurationError

WORKERS = 4
"""Processes of one training process, of which there may be eight on a machine. Each takes about 100 MB."""


class ExpressionJudge:
    """Asks `expression_worker`, in as many processes as threads ask at once, `WORKERS` at most; the first starts them.

    Attributes:
        ended: how many pairs came to their limit of time or memory.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._forget()

    def are_equal(self, reference: str, answer: str) -> bool:
        """Whether the two are mathematically equal; False where that is not found out within the limits.

        Raises:
            ConfigurationError: math-verify is not installed, or its process cannot be started here.
            RuntimeError: its process was ended from outside, twice.
        """
        if self._owner != os.getpid():  # a forked process has pipes that belong to another
            self._forget()
        question = json.dumps([reference, answer]) + "\n"
        with self._places:
            # A process that the kernel ended for want of memory must not end the training run: another one is asked.
            line = self._ask(question) or self._ask(question, fresh=True)
        if not line:
            raise RuntimeError(
                "trl_vade.rewards.expression_worker was ended twice over one comparison, from outside: it has "
                "limits of its own and answers when it comes to them. What it wrote is above; is there memory left? "
                f"{question}"
            )
        verdict = json.loads(line)
        self.ended += verdict is None
        return bool(verdict)

    def _ask(self, question: str, *, fresh: bool = False) -> str:
        """A worker's answer; "" where it is gone."""
        worker = self._idle.pop() if self._idle and not fresh else start_worker()
        line = ""
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(question)
                worker.stdin.flush()
                line = worker.stdout.readline()
        finally:  # Ctrl-C while it works would leave an answer in the pipe, for the next question
            if line:
                self._idle.append(worker)
            else:
                end(worker)
        return line

    def close(self) -> None:
        """End the processes that are idle, if they are of this process's own."""
        while self._owner == os.getpid() and self._idle:
            end(self._idle.pop())

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._places = threading.Semaphore(WORKERS)
        self._idle: list[Any] = []  # popped and appended to by several threads, each in one step


def end(worker: Any) -> None:
    """End a worker's process and wait for it."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(BrokenPipeError):  # what was not flushed
            pipe.close()


def start_worker() -> Any:
    """Start a worker's process and return it, a `Popen`, when its parser is loaded."""
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
    if process.stdout.readline().strip() != "ready":
        process.kill()
        raise ConfigurationError(
            "The process that compares expressions (trl_vade.rewards.expression_worker) did not start; what it wrote "
            'is above. Is math-verify whole? pip install --force-reinstall "trl-vade[rewards]"'
        )
    return process


JUDGE = ExpressionJudge()
atexit.register(JUDGE.close)


@functools.lru_cache(maxsize=50_000)
def equal_expressions(reference: str, answer: str) -> bool:
    """`ExpressionJudge.are_equal`, asked once for a pair: the answers of a group are often the same."""
    return JUDGE.are_equal(reference, answer)
