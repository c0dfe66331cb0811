"""The posterior before the first update: rollouts of every row, or the counts of another run.

Source: arXiv 2511.18902, Algorithm 1, lines 1-4, for `vade_posterior_init="rollout"`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from tqdm import tqdm
from trl import GRPOConfig

from trl_vade.data.pass_rates import pass_rates
from trl_vade.hub.uploading import is_hub_id
from trl_vade.processes import on_main_process
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.selection.warm_start import evidence, what_to_say

from .presets import COLUMN, column_of, setting, warm_start_source

logger = get_logger(__name__)

LOCAL = "a local posterior"
COLUMN_COUNTS = 8
"""The answers that a pass rate of a column counts for, before `vade_warm_start_discount`: it is of another policy."""
MIN_MATCH = 0.5
"""The smallest share of rows that the other run and the data set must have in common, counted in the smaller of the
two. A posterior of other rows says nothing, and a slip in its name must not pass for one."""


def read_warm_start(args: GRPOConfig) -> Any:
    """Read the posterior that `vade_posterior_init` names, or None. All processes must take part.

    The main process reads and broadcasts, because a branch on the Hub may move between two reads.

    Raises:
        SnapshotError: on all processes: the source has no posterior, or it is damaged.
        HubError: on all processes: the Hub refused, or could not be reached.
    """
    from trl_vade.hub.posteriors.repository import load_posterior  # the Hub's client

    source = warm_start_source(args)
    return source and not column_of(args) and on_main_process(lambda: load_posterior(source))


def may_resume(args: GRPOConfig) -> bool:
    """Return whether a run may go on with the posterior of its checkpoint, and so needs no other."""
    asked = str(args.resume_from_checkpoint).lower() not in ("none", "false", "auto")
    return asked or any(Path(args.output_dir).glob("*checkpoint*/"))


def initial_posterior_facts(args: GRPOConfig) -> dict[str, Any]:
    """Return the initial posterior and its discount as JSON values. The discount is None without a warm start.

    These facts are published, so the name of a local folder is left out.
    """
    source = warm_start_source(args)
    if source is None:
        return {"posterior_init": setting(args, "posterior_init"), "warm_start_discount": None}
    public = column_of(args) or (is_hub_id(source.partition("@")[0]) and not Path(source).exists())
    return {
        "posterior_init": source if public else LOCAL,
        "warm_start_discount": setting(args, "warm_start_discount"),
    }


def initialise_posterior(trainer: Any) -> None:
    """Fill the posterior of `trainer` as `vade_posterior_init` says. Updates no weights and logs no metrics.

    Raises:
        SnapshotMismatchError: too few rows of the other run are among those of this one.
    """
    args, selection, source = trainer.args, trainer.selection, warm_start_source(trainer.args)
    if source is None:
        _roll_out_every_row(trainer)
        return
    if column := column_of(args):
        _believe_column(trainer, column)
        return
    table, trainer._warm_start = trainer._warm_start or read_warm_start(args), None
    commit = table.metadata.get("revision")
    named = source if not commit or Path(source).exists() else f"{source.partition('@')[0]}@{commit}"
    keys, discount = selection.sample_keys, args.vade_warm_start_discount
    saved = table.sample_key, table.alpha, table.beta
    found = evidence(keys, saved, named, discount=discount, min_match=MIN_MATCH)
    here = {"num_generations": args.num_generations, "success_threshold": args.vade_success_threshold}
    here["success_reward"] = args.vade_success_reward or selection.feedback.signal.facts["success_reward"]
    rows = len(table), len(keys), len(found.sample_index)
    for message in what_to_say(named, table.metadata, here, rows, discount):
        logger.warning(message)  # a level that is shown by default
    local = initial_posterior_facts(args)["posterior_init"] == LOCAL
    selection.feedback.warm_start(found, LOCAL if local else named)  # the log is pushed


def _believe_column(trainer: Any, column: str) -> None:
    """Start each row from its pass rate in a column of the training set, as if of `COLUMN_COUNTS` answers."""
    feedback, rates = trainer.selection.feedback, pass_rates(trainer.train_dataset, column)
    rows, weight = np.flatnonzero(~np.isnan(rates)), COLUMN_COUNTS * trainer.args.vade_warm_start_discount
    p = rates[rows]
    successes = weight * (2.0 * p * (1.0 - p) if feedback.signal.is_spread else p)
    outcomes = GroupOutcomes(rows, successes, np.full(len(p), weight), np.zeros(len(p), dtype=np.bool_))
    feedback.warm_start(outcomes, f"{COLUMN}{column}")
    logger.warning(
        f"Warm start from the column {column!r}: {len(rows)} of {len(rates)} rows start from its pass rates, with the "
        f"weight of {weight:g} answers ({COLUMN_COUNTS} x vade_warm_start_discount); their mean is {p.mean():.3f}. "
        "The others start from the prior."
    )


def _roll_out_every_row(trainer: Any) -> None:
    num_batches = -(-len(trainer.train_dataset) // trainer.selection.num_groups)
    batches = tqdm(
        trainer.selection.initial_batches(),
        total=num_batches,
        desc="Initial rollouts of every row",
        disable=trainer.args.disable_tqdm or not trainer.is_world_process_zero(),
    )
    for rows in batches:
        with generating(trainer):
            trainer._generate_and_score_completions(rows)
    trainer.selection.feedback.finish_initialisation()
    trainer._metrics["train"].clear()


@contextmanager
def generating(trainer: Any) -> Iterator[None]:
    """Time a generation batch. Leave its images out of the completions table if some process has none."""
    trainer.log_multimodal = trainer.args.log_multimodal and trainer.selection.loader.images_on_all_processes
    try:
        with trainer.selection.feedback.timed("generation"):
            yield
    finally:
        trainer.log_multimodal = trainer.args.log_multimodal
