"""The data loader of tickets, and the decoding of the next generation batch while the present one trains."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .initial_posterior import generating, initialise_posterior
from .presets import setting

WITHOUT_WORKERS = {
    **{"dataloader_num_workers": 0, "dataloader_persistent_workers": False},
    **{"dataloader_prefetch_factor": None, "dataloader_multiprocessing_context": None},
}


@contextmanager
def of_tickets(trainer: Any) -> Iterator[None]:
    """Replace the trainer's rows by their numbers within the block, so that its loader carries tickets.

    It may then read ahead, skip and start epochs at no cost, with TRL's arithmetic of steps. No ticket is ever used.
    Numbers need no workers: a signal to all processes of a job, as from Slurm, would end them before the last save.
    """
    rows, args = trainer.train_dataset, trainer.args
    trainer.train_dataset, trainer.args = range(len(rows)), copy.copy(args)
    vars(trainer.args).update(WITHOUT_WORKERS)
    try:
        yield
    finally:
        trainer.train_dataset, trainer.args = rows, args


def draws_apart(loader: Any, seed: int) -> Any:
    """Return the loader, which draws its workers' seed, one an epoch, no longer from torch's global generator."""
    loader.base_dataloader.generator = torch.Generator().manual_seed(seed)
    return loader


def generate_every(trainer: Any) -> int:
    """Return the micro-batches from one generation batch to the next (TRL 1.16, `GRPOTrainer._prepare_inputs`)."""
    return trainer.args.steps_per_generation * trainer.num_iterations


@contextmanager
def rows_of_batch(trainer: Any, tickets: Any) -> Iterator[Any]:
    """Choose rows for the block in place of `tickets` if TRL generates in it, and start decoding those after them.

    The initial posterior is filled before. Outside of training, and without a selection, the tickets are TRL's rows.
    """
    selection, args = trainer.selection, trainer.args
    if selection is None or not trainer.model.training or not generation_is_due(trainer):
        yield tickets
        return
    if setting(args, "posterior_init") != "prior" and selection.sampler.posterior.step == 0:
        initialise_posterior(trainer)
    rows = selection.choose()
    with generating(trainer):
        yield rows
    micro_batches = trainer.state.max_steps * args.gradient_accumulation_steps
    if trainer._step + generate_every(trainer) < micro_batches:  # else the run ends before the next batch
        selection.prefetch()


def numbers_of(trainer: Any, prompts: list[Any]) -> list[Any]:
    """Return the number of each prompt's row in training. In an evaluation, whose rows TRL loads, prompts stand."""
    numbers = trainer.selection.loader.numbers if trainer.selection is not None and trainer.model.training else []
    return numbers if len(numbers) == len(prompts) else prompts


def generation_is_due(trainer: Any) -> bool:
    """Return whether TRL generates in this micro-batch; a test holds this against `GRPOTrainer._prepare_inputs`."""
    return trainer._step % generate_every(trainer) == 0 or trainer._buffered_inputs is None
