"""What a trainer is doing now, in words for its console."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

UPDATING = "updating"  # what it does when nothing else is said


@contextmanager
def doing(trainer: Any, what: str) -> Iterator[None]:
    """Set `trainer.activity` to `what` within the block."""
    before, trainer.activity = trainer.activity, what
    try:
        yield
    finally:
        trainer.activity = before
