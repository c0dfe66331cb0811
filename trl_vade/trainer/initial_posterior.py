"""The posterior before the first update: rollouts of every row (arXiv 2511.18902, Algorithm 1, lines 1-4), or counts.

In a warm start a shared row starts with `vade_warm_start_discount` of the counts of another run, and need not rest.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from tqdm import tqdm
from trl import GRPOConfig

from trl_vade.checks import FloatArray, IntArray
from trl_vade.data.columns import pass_rates
from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotMismatchError, abbreviated
from trl_vade.hub.uploading import is_hub_id
from trl_vade.processes import on_main_process
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.selection.success import AUTO, SPREAD

from .presets import COLUMN, column_of, setting, warm_start_source

logger = get_logger(__name__)

LOCAL = "a local posterior"
COLUMN_COUNTS = 8
"""The answers that a pass rate of a column counts for, before `vade_warm_start_discount`: it is of another policy."""
MIN_MATCH = 0.5
"""The smallest share of rows that the other run and the data set must have in common, counted in the smaller of the
two. A posterior of other rows says nothing, and a slip in its name must not pass for one."""


def read_warm_start(args: GRPOConfig) -> Any:
    """Read the posterior that `vade_posterior_init` names, or None; without a sound one all raise `SnapshotError`.

    The main process reads and broadcasts, because a branch on the Hub may move between two reads.
    """
    from trl_vade.hub.posteriors.repository import load_posterior  # the Hub's client

    source = warm_start_source(args)
    return source and not column_of(args) and on_main_process(lambda: load_posterior(source))


def may_resume(args: GRPOConfig) -> bool:
    """Return whether a run may go on with the posterior of its checkpoint, and so needs no other."""
    asked = str(args.resume_from_checkpoint).lower() not in ("none", "false", "auto")
    return asked or any(Path(args.output_dir).glob("*checkpoint*/"))


def initial_posterior_facts(args: GRPOConfig) -> dict[str, Any]:
    """Return the initial posterior and its discount as JSON values to publish, without the name of a folder."""
    source = warm_start_source(args)
    if source is None:
        return {"posterior_init": setting(args, "posterior_init"), "warm_start_discount": None}
    public = column_of(args) or (is_hub_id(source.partition("@")[0]) and not Path(source).exists())
    return {"posterior_init": source if public else LOCAL, "warm_start_discount": setting(args, "warm_start_discount")}


def initialise_posterior(trainer: Any) -> None:
    """Fill the posterior of `trainer` as `vade_posterior_init` says. Updates no weights and logs no metrics.

    Too few rows in common with the other run are a `SnapshotMismatchError`.
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
        f"weight of {weight:g} answers ({COLUMN_COUNTS} x vade_warm_start_discount); their mean is {p.mean():.3f}."
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


def evidence(
    keys: IntArray, saved: tuple[IntArray, FloatArray, FloatArray], source: str, *, discount: float, min_match: float
) -> GroupOutcomes:
    """Join another run's V rows, the keys, alpha and beta in `saved`, with the N rows here by their keys.

    The outcomes are discounted, without gradients. Fewer shared rows than `min_match` of min(V, N), or none, are a
    `SnapshotMismatchError` about `source`.
    """
    saved_key, alpha, beta = saved
    found, rows = find_rows(saved_key, keys)
    matched = int(found.sum())
    if matched < min_match * min(len(rows), len(keys)) or (min_match > 0 and not matched):
        raise SnapshotMismatchError(
            f"vade_posterior_init={abbreviated(source)} shares {matched} of its {len(rows)} rows with the {len(keys)} "
            f"rows of this training set; at least {min_match:.0%} of the smaller number must be shared. Rows match by "
            "`id` where each row has another, else by prompt and images. remove_unused_columns=True hides ids. For "
            "another data set, set vade_posterior_init='prior'."
        )
    successes, failures, none = discount * alpha[found], discount * beta[found], np.zeros(matched, dtype=np.bool_)
    return GroupOutcomes(rows[found], successes, successes + failures, none)


def what_to_say(
    source: str, facts: Mapping[str, Any], here: Mapping[str, Any], rows: tuple[int, int, int], discount: float
) -> list[str]:
    """Return a line with the source and the number of shared rows, and one if success was another there.

    `facts` are of the other run. `here` are `num_generations`, `success_threshold` and `success_reward`, None if
    unknown, of this one. `rows` are the numbers of rows there, here, and in both.
    """
    theirs, num_rows, shared = rows
    ours = dict(here)
    why = "Rows match by `id`; without one by prompt and images, or by all columns where rows share these. "
    shown = ("global_step", "base_model", "success_reward", "num_generations")
    lines = [
        f"Warm start from {source} ({abbreviated({name: facts[name] for name in shown if name in facts})}): "
        f"{shared} of its {theirs} rows are in this training set and start with "
        f"{100 * discount:g} % of their counts; {theirs - shared} are not. {why * (theirs > shared)}"
        f"{num_rows - shared} of the {num_rows} rows here start from the prior."
    ]
    ours["success_reward"] = ours["success_reward"] or facts.get("success_reward")
    if ours["success_threshold"] == AUTO and facts.get("success_threshold") != SPREAD:
        del ours["success_threshold"]  # it will be learned from the rewards
    if there := {name: facts[name] for name in ours if facts.get(name, ours[name]) != ours[name]}:
        lines.append(
            f"{source} was learned with {abbreviated(there)}, but this run has "
            f"{ {name: ours[name] for name in there} }, so its pass rates mean something else. They are used all the "
            "same; a smaller vade_warm_start_discount gives them less weight."
        )
    return lines
