"""The comparison of expressions, by math-verify in separate processes with limits."""

import atexit
import contextlib
import functools
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

from trl_vade.errors import ConfigurationError, abbreviated

from . import expression_worker

logger = logging.getLogger(__name__)

WORKERS = 4  # of one training process; each takes about 100 MB, and a machine may have eight trainings
START_SECONDS, ANSWER_SECONDS = 300.0, 30.0  # of the clock on the wall; a busy machine needs far less
INSTALL = 'pip install "trl-vade[rewards]"'


class Worker:
    """A process of `expression_worker`, which ends if a question reaches a limit."""

    def __init__(self) -> None:
        require_math_verify()
        self.process = subprocess.Popen(  # -P: no file of the working directory stands for a module
            [sys.executable, "-P", expression_worker.__file__], stdin=-1, stdout=-1, text=True, encoding="utf-8"
        )
        started = self._line(START_SECONDS).strip()
        if started != "ready":
            self.end()
            raise ConfigurationError(
                f"trl_vade/rewards/expression_worker.py did not start: {started or 'its output is above'}. Reinstall "
                f"math-verify with {INSTALL} --force-reinstall, or give the process more memory."
            )

    def ask(self, question: str) -> str:
        """Return the answer to a line, or "" if the process has ended."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(question)
            self.process.stdin.flush()
            return self._line(ANSWER_SECONDS)
        return ""

    def _line(self, seconds: float) -> str:
        clock, start = threading.Timer(seconds, self.process.kill), time.monotonic()
        clock.start()
        try:
            return self.process.stdout.readline()
        finally:
            clock.cancel()
            self.late = time.monotonic() - start >= seconds

    def end(self) -> None:
        """End the process and wait for it."""
        self.process.kill()
        self.process.communicate()  # also closes its pipes


class ExpressionJudge:
    """A client of `expression_worker` that starts one process for each concurrent thread, up to `WORKERS`."""

    def __init__(self) -> None:
        self.ended = 0  # the pairs that reached their limit of time
        self._forget()

    def are_equal(self, reference: str, answer: str) -> bool | None:
        """Return whether both are equal: False if the limits end it, None if the reference cannot be read.

        A process that was killed twice is a `RuntimeError`; without math-verify it is a `ConfigurationError`.
        """
        if self._owner != os.getpid():  # after a fork the pipes belong to the parent
            self._forget()
        question = json.dumps([reference, answer]) + "\n"
        with self._places:
            # The kernel may kill a process when memory runs out. A second one is asked before the run stops.
            for fresh in (False, True):
                worker = self._idle.pop() if self._idle and not fresh else Worker()
                line = ""
                try:
                    line = worker.ask(question)
                finally:  # Ctrl-C would leave this answer in the pipe for the next question
                    self._idle.append(worker) if line else worker.end()
                if line:
                    return json.loads(line)
                if worker.late or worker.process.returncode == -getattr(signal, "SIGPROF", 0):
                    self.ended += 1
                    if self.ended & (self.ended - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
                        late = f"{self.ended} answers took too long to compare"
                        logger.warning(f"{late} and count as wrong, such as {abbreviated(answer)}.")
                    return False
        raise RuntimeError(
            "trl_vade/rewards/expression_worker.py was killed twice during one comparison, by something other than "
            f"its own limits. Its output is above. Is memory left? The pair: {question}"
        )

    def close(self) -> None:
        """End the idle processes, unless they belong to the parent of a fork."""
        while self._owner == os.getpid() and self._idle:
            self._idle.pop().end()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._places = threading.Semaphore(WORKERS)
        self._idle: list[Worker] = []  # several threads pop and append, each in one step


def has_math_verify() -> bool:
    """Return whether it is installed."""
    return importlib.util.find_spec("math_verify") is not None


def require_math_verify(why: str = "one is to be compared") -> None:
    """Raise `ConfigurationError` if math-verify is not installed."""
    if not has_math_verify():
        raise ConfigurationError(
            f"Answers of type 'expression' need math-verify, which is not installed, and {why}. Install it with "
            f"{INSTALL}, or drop the rows of that type."
        )


JUDGE = ExpressionJudge()
atexit.register(JUDGE.close)


@functools.lru_cache(maxsize=50_000)
def equal_expressions(reference: str, answer: str) -> bool | None:
    """Return `ExpressionJudge.are_equal`, cached, because the answers of a group are often equal."""
    return JUDGE.are_equal(reference, answer)
