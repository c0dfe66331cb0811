"""When the images of the next generation batch are decoded: while the steps of this one run.

The next choice is a pure function of the sampler once this batch is observed, so it is known from then on; with
dynamic sampling, once the last refill is scored.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class TicketDataset(torch.utils.data.Dataset):
    """Stands in for `num_rows` training rows in the loader: item i is the number i, which nobody reads.

    Look-ahead, loader workers, skipped batches on resume and epochs then cost nothing and choose nothing, while TRL
    and the Trainer keep their own arithmetic of lengths and steps.
    """

    def __init__(self, num_rows: int):
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> int:
        return index


class TicketSampler(torch.utils.data.Sampler[int]):
    """As many tickets as `stock` gives, one and the same: TRL's would list the numbers of all rows each epoch.

    Args:
        stock: the `RepeatSampler` (TRL 1.16) of a `TicketDataset`.
    """

    def __init__(self, stock: Any):
        self._stock = stock

    def __len__(self) -> int:
        return len(self._stock)

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0, len(self))


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
