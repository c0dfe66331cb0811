"""Pictures of logged tables of completions, each written once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trl.trainer import grpo_trainer


@contextmanager
def pictures_once() -> Iterator[None]:
    """Make trackio write a picture once in the block, however many completions of a table have it.

    TRL 1.16 makes an `Image` of a picture for each completion (`GRPOTrainer.log`), and each becomes a file.
    """
    backend = getattr(grpo_trainer, "trackio", None)
    if backend is None:
        yield
        return
    kind, made = backend.Image, {}  # TRL's table keeps the pictures, so that no other gets an identity of these

    def make(picture: Any) -> Any:
        if id(picture) not in made:
            made[id(picture)] = kind(picture)
        return made[id(picture)]

    backend.Image = make
    try:
        yield
    finally:
        backend.Image = kind
