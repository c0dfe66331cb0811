"""When the images of the next generation batch are decoded: while the steps of this one run.

The next choice is a pure function of the sampler once this batch is observed, so it is known from then on; with
dynamic sampling, once the last refill is scored.
"""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .presets import is_adaptive


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


@contextmanager
def of_tickets(trainer: Any) -> Iterator[None]:
    """In the block the trainer makes a loader of tickets, and without workers.

    They would have nothing to do, and one that a signal ends (Slurm's, to all processes) would end the run by torch's
    error, before its last checkpoint. Only uniform keeps persistent ones: with them torch takes a seed from its global
    generator once, and not each epoch, so stock TRL samples other completions.
    """
    rows, args = trainer.train_dataset, trainer.args
    trainer.train_dataset, trainer.args = TicketDataset(len(rows)), copy.copy(args)
    if is_adaptive(args) or not args.dataloader_persistent_workers:
        trainer.args.dataloader_num_workers, trainer.args.dataloader_prefetch_factor = 0, None
        trainer.args.dataloader_persistent_workers = False
    try:
        yield
    finally:
        trainer.train_dataset, trainer.args = rows, args


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
