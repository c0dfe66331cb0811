"""What becomes of many random tries: each works, is refused in our own words, or is lost."""

import contextlib
import faulthandler
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

from .result import Result

LIMIT = 20.0
"""Seconds that a single try may take; the usual one takes less than a millisecond."""

Attempt = Callable[[random.Random, list[str]], str]


class Hangs(BaseException):
    """No `except Exception` may swallow it."""


class Lost(AssertionError):
    """What was loaded is not what the file says."""


def dice(seed: int, case: str, number: int) -> random.Random:
    """The random generator of one try."""
    return random.Random(f"{seed}/{case}/{number}")


def fuzz(case: str, tries: int, seed: int, attempt: Attempt) -> Result:
    """Count what becomes of `tries`; an attempt says what it does as it goes, and returns the outcome in a word."""
    outcomes: Counter[str] = Counter()
    lost: dict[str, list[str]] = {}
    for number in range(tries):
        story: list[str] = []
        try:
            # Nothing here cuts the power, and waiting for the disk would take most of the time.
            with time_limit(), warnings.catch_warnings(), mock.patch("os.fsync"):
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message=".*gradient_checkpointing")  # TRL's default
                outcomes[attempt(dice(seed, case, number), story)] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of Rust code is no Exception
            kind = f"{type(error).__name__}: {str(error)[:40]}"
            lost.setdefault(kind, []).append(f"try {number} ({', '.join(story)}): {str(error)[40:240]}")
    notes = [", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))]
    notes += [f"\n    lost {len(each)} by {kind}, first {each[0]}" for kind, each in lost.items()]
    num_lost = sum(map(len, lost.values()))
    return Result(case, tries, tries - num_lost, num_lost, "".join(notes))


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Interrupt Python code that runs on; compiled code that does ends the process, with a traceback."""

    def interrupt(*_: object) -> None:
        raise Hangs

    before, start = signal.signal(signal.SIGALRM, interrupt), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    faulthandler.dump_traceback_later(2 * LIMIT, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if time.monotonic() - start > LIMIT:
        raise Hangs


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Lost(what)
