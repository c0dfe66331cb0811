"""Algorithm 1, lines 1-4: rollouts of every row before the first update (`vade_posterior_init="rollout"`)."""

from collections import defaultdict
from typing import Any

from tqdm import tqdm


def initialise_posterior(trainer: Any) -> None:
    """Score `num_generations` rollouts of every row; no update, no metrics of a step."""
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
