"""Pictures of logged tables of completions, each written once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trl.trainer import grpo_trainer


@contextmanager
def pictures_once() -> Iterator[None]:
    """Make trackio and W&B write a picture once in the block, however many completions of a table have it.

    TRL 1.16 makes an `Image` of a picture for each completion (`GRPOTrainer.log`), and each becomes a file.
    """
    backends = [each for name in ("trackio", "wandb") if (each := getattr(grpo_trainer, name, None)) is not None]
    kinds = [backend.Image for backend in backends]
    for backend, kind in zip(backends, kinds, strict=True):
        backend.Image = _made_once(kind)
    try:
        yield
    finally:
        for backend, kind in zip(backends, kinds, strict=True):
            backend.Image = kind


def _made_once(kind: Any) -> Any:
    made: dict[int, Any] = {}  # TRL's table keeps the pictures alive, so that no other gets an identity of these

    def make(picture: Any) -> Any:
        if id(picture) not in made:
            made[id(picture)] = kind(picture)
        return made[id(picture)]

    return make
