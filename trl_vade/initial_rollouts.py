"""What the posterior knows before the first update: rollouts of every row, or what another run has learned.

Algorithm 1, lines 1-4 (`vade_posterior_init="rollout"`), or `warm_start`.
"""

from collections import defaultdict
from typing import Any

from tqdm import tqdm

from .presets import warm_start_source
from .warm_start import warm_start_of


def initialise_posterior(trainer: Any) -> None:
    """Do what `vade_posterior_init` says, other than "prior"; no update, no metrics of a step."""
    if warm_start_source(trainer.args) is None:
        _roll_out_every_row(trainer)
    else:
        warm = warm_start_of(trainer)
        trainer.selection.warm_start(warm.outcomes, warm.source)
        trainer._warm_start = None  # as large as the data set


def _roll_out_every_row(trainer: Any) -> None:
    """Score `num_generations` rollouts of every row."""
    metrics, trainer._metrics["train"] = trainer._metrics["train"], defaultdict(list)
    num_batches = -(-len(trainer.train_dataset) // trainer.selection.num_groups)
    batches = tqdm(
        trainer.selection.initial_batches(),
        total=num_batches,
        desc="Initial rollouts of every row",
        disable=trainer.args.disable_tqdm or not trainer.is_world_process_zero(),
    )
    for rows in batches:
        with trainer._generating():
            trainer._generate_and_score_completions(rows)
    trainer.selection.finish_initialisation()
    trainer._metrics["train"] = metrics
