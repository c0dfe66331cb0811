"""The data loader of tickets, and the decoding of the next generation batch while the present one trains.

The next choice depends only on the sampler. It is known as soon as the present batch is observed; with dynamic
sampling, as soon as the last refill is scored.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .initial_posterior import generating, initialise_posterior
from .presets import setting


@contextmanager
def of_tickets(trainer: Any) -> Iterator[None]:
    """Replace the trainer's rows by their numbers within the block, so that its loader carries tickets.

    It may then read ahead, run workers, skip batches on resume and start epochs at no cost, and chooses nothing.
    TRL and the Trainer keep their own arithmetic of lengths and steps. No ticket is ever used.
    """
    rows = trainer.train_dataset
    trainer.train_dataset = range(len(rows))
    try:
        yield
    finally:
        trainer.train_dataset = rows


def undisturbed(init: Callable[[int], Any] | None, number: int) -> None:
    """Start a loader's worker, and let it ignore the signals that stop a run, before TRL's `init`.

    A worker has nothing to do, but would end the run if a signal ended it. Slurm signals all processes of a job, and
    the trainer still has to save a last checkpoint.
    """
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    if init:
        init(number)


def generate_every(trainer: Any) -> int:
    """Return the micro-batches from one generation batch to the next (TRL 1.16, `GRPOTrainer._prepare_inputs`)."""
    return trainer.args.steps_per_generation * trainer.num_iterations


@contextmanager
def rows_of_batch(trainer: Any, tickets: Any) -> Iterator[Any]:
    """Choose rows for the block in place of `tickets` if TRL generates in it, and start decoding those after them.

    The initial posterior is filled before the first choice. The images of a batch stay out of the table of completions
    if some process has none. Outside of training, and without a selection, the tickets are TRL's rows.
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
