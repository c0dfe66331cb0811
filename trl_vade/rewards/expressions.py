"""The comparison of expressions, by math-verify in separate processes with limits."""

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
"""The most processes of one training process. Each takes about 100 MB, and a machine may have eight trainings."""


class ExpressionJudge:
    """A client of `expression_worker` that starts one process for each concurrent thread, up to `WORKERS`."""

    def __init__(self) -> None:
        self.ended = 0  # the pairs that reached their limit of time or memory
        self._forget()

    def are_equal(self, reference: str, answer: str) -> bool:
        """Return whether both are mathematically equal; False if the limits end the comparison.

        Raises:
            ConfigurationError: math-verify is not installed, or its process cannot be started.
            RuntimeError: the process was killed twice.
        """
        if self._owner != os.getpid():  # after a fork the pipes belong to the parent
            self._forget()
        question = json.dumps([reference, answer]) + "\n"
        with self._places:
            # The kernel may kill a process when memory runs out. A second one is asked before the run stops.
            line = self._ask(question) or self._ask(question, fresh=True)
        if not line:
            raise RuntimeError(
                "trl_vade.rewards.expression_worker was killed twice during one comparison, by something other than "
                f"its own limits. Its output is above. Is memory left? The pair: {question}"
            )
        verdict = json.loads(line)
        self.ended += verdict is None
        return bool(verdict)

    def _ask(self, question: str, *, fresh: bool = False) -> str:
        """Return a worker's answer, or "" if the worker has ended."""
        worker = self._idle.pop() if self._idle and not fresh else start_worker()
        line = ""
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(question)
                worker.stdin.flush()
                line = worker.stdout.readline()
        finally:  # Ctrl-C would leave this answer in the pipe for the next question
            if line:
                self._idle.append(worker)
            else:
                end(worker)
        return line

    def close(self) -> None:
        """End the idle processes, unless they belong to the parent of a fork."""
        while self._owner == os.getpid() and self._idle:
            end(self._idle.pop())

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._places = threading.Semaphore(WORKERS)
        self._idle: list[Any] = []  # several threads pop and append, each in one step


def end(worker: Any) -> None:
    """End a worker's process and wait for it."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(BrokenPipeError):  # from unflushed data
            pipe.close()


def start_worker() -> Any:
    """Start a worker and return its `Popen` once the parser is loaded."""
    if importlib.util.find_spec("math_verify") is None or not hasattr(os, "fork"):
        raise ConfigurationError(
            "Answers of type 'expression' need math-verify and a system that can fork; one of them is missing "
            f"(this system is {sys.platform}). Install it with "
            'pip install "trl-vade[rewards]" on Linux or macOS, or drop the rows of that type.'
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
            "The process that compares expressions (trl_vade.rewards.expression_worker) did not start. Its output is "
            'above. Reinstall math-verify: pip install --force-reinstall "trl-vade[rewards]"'
        )
    return process


JUDGE = ExpressionJudge()
atexit.register(JUDGE.close)


@functools.lru_cache(maxsize=50_000)
def equal_expressions(reference: str, answer: str) -> bool:
    """Return `ExpressionJudge.are_equal`, cached, because the answers of a group are often equal."""
    return JUDGE.are_equal(reference, answer)
