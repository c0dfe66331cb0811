"""When the images of the next generation batch are decoded: while the steps of this one run.

The next choice is a pure function of the sampler once this batch is observed, so it is known from then on; with
dynamic sampling, once the last refill is scored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def generate_every(trainer: Any) -> int:
    """Micro-batches that a generation batch is used for (TRL 1.16, `GRPOTrainer._prepare_inputs`)."""
    return trainer.args.steps_per_generation * trainer.num_iterations


def load_ahead(trainer: Any) -> None:
    """Begin with the generation batch after the one that was just made, unless the run ends before it."""
    micro_batches = trainer.state.max_steps * trainer.args.gradient_accumulation_steps
    if trainer._step + generate_every(trainer) < micro_batches:
        trainer.selection.prefetch()


@contextmanager
def loading_ahead(trainer: Any) -> Iterator[None]:
    """However the block ends, nothing is decoded any more: a callback may have stopped the run, or an error."""
    try:
        yield
    finally:
        if trainer.selection is not None:
            trainer.selection.loader.decoder.forget()
