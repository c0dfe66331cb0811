"""Warm start: the posterior of another run, applied to the rows that both training sets share.

A shared row starts with `vade_warm_start_discount` of its counts, observed in one step before the first draw. It
counts as visited once and need not rest. All other rows start from the prior.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from trl import GRPOConfig

from trl_vade.checks import MOST_TRIALS
from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError, abbreviated

from .outcomes import GroupOutcomes
from .signal import AUTO, SPREAD

if TYPE_CHECKING:
    from trl_vade.hub.posteriors.table import PosteriorTable


class WarmStart(NamedTuple):
    """Evidence of another run about rows of the training set."""

    source: str  # as in the setting, with the commit if it is known
    outcomes: GroupOutcomes  # discounted, and without gradients, since no group was generated


def evidence(
    table: "PosteriorTable", keys: NDArray[np.int64], source: str, *, discount: float, min_match: float
) -> WarmStart:
    """Join a posterior of V rows with the N rows of a data set, whose `row_keys.sample_keys` are `keys`, (N,).

        successes_i = discount * alpha_i    trials_i = discount * (alpha_i + beta_i)

    `source` is the name of the posterior in messages.

    Raises:
        SnapshotMismatchError: fewer than the share `min_match` of min(V, N) rows, or none, are shared.
        SnapshotCorruptError: a count is above 2**53.
    """
    found, rows = find_rows(table.sample_key, keys)
    matched, fewer = int(found.sum()), min(len(rows), len(keys))
    if matched < min_match * fewer or (min_match > 0 and not matched):
        raise SnapshotMismatchError(
            f"vade_posterior_init={abbreviated(source)} shares {matched} of its {len(rows)} rows with the {len(keys)} "
            f"rows of this training set; at least {min_match:.0%} of the smaller number must be shared. Rows match by "
            "`id` where that column has another value in each row, and else by prompt and images; an id 7 is not the "
            "id '7', and remove_unused_columns=True hides ids. For another data set, set vade_posterior_init='prior'."
        )
    alpha, beta = table.alpha[found], table.beta[found]
    trials = discount * (alpha + beta)
    if (trials > MOST_TRIALS).any():
        raise SnapshotCorruptError(
            f"vade_posterior_init={abbreviated(source)} counts over 2**53 completions of a row."
        )
    return WarmStart(source, GroupOutcomes(rows[found], discount * alpha, trials, np.zeros(matched, dtype=np.bool_)))


def what_to_say(
    warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, num_rows: int, success_reward: str | None
) -> list[str]:
    """Return a line with the source and the number of shared rows, and one if success was another there."""
    facts, matched = table.metadata, len(warm.outcomes.sample_index)
    shown = ("global_step", "base_model", "success_reward", "num_generations")
    known = {name: facts[name] for name in shown if name in facts}
    lines = [
        f"Warm start from {warm.source} ({abbreviated(known)}): {matched} of its {len(table)} rows are in this "
        f"training set and start with {100 * args.vade_warm_start_discount:g} % of their counts; "
        f"{len(table) - matched} are not. {num_rows - matched} of the {num_rows} rows here start from the prior."
    ]
    here = {
        "success_reward": args.vade_success_reward or success_reward or facts.get("success_reward"),
        "success_threshold": args.vade_success_threshold,
        "num_generations": args.num_generations,
    }
    if here["success_threshold"] == AUTO and facts.get("success_threshold") != SPREAD:
        del here["success_threshold"]  # it will be learned from the rewards
    if there := {name: facts[name] for name in here if facts.get(name, here[name]) != here[name]}:
        lines.append(
            f"{warm.source} was learned with {abbreviated(there)}, but this run has "
            f"{ {name: here[name] for name in there} }, so its pass rates mean something else. The run uses them "
            "anyway; a smaller vade_warm_start_discount gives them less weight."
        )
    return lines
