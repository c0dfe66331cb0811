"""Warm start: the posterior of another run, applied to the rows that both training sets share.

A shared row starts with `vade_warm_start_discount` of its counts, observed in one step before the first draw. It
counts as visited once and need not rest. All other rows start from the prior.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Evidence of another run about M rows of the training set."""

    source: str  # as in the setting, with the commit if it is known
    sample_index: NDArray[np.int64]  # (M,) distinct rows
    successes: NDArray[np.float64]  # (M,) discounted
    trials: NDArray[np.float64]  # (M,) discounted, at least the successes

    @property
    def outcomes(self) -> GroupOutcomes:
        """The evidence as outcomes without gradients, since no group was generated."""
        none = np.zeros(len(self.sample_index), dtype=np.bool_)
        return GroupOutcomes(self.sample_index, self.successes, self.trials, none)


def evidence(
    table: "PosteriorTable",
    keys: NDArray[np.int64],
    *,
    discount: float,
    min_match: float = 0.0,
    source: str = "the posterior",
) -> WarmStart:
    """Join a posterior of V rows with the N rows of a data set, whose `row_keys.sample_keys` are `keys`, (N,).

        successes_i = discount * alpha_i    trials_i = discount * (alpha_i + beta_i)

    A shared row starts with the mean (discount alpha + 1) / (discount (alpha + beta) + 2). `source` is the name of the
    posterior in messages.

    Raises:
        SnapshotMismatchError: fewer than the share `min_match` of min(V, N) rows, or none, are shared.
        SnapshotCorruptError: a count is above 2**53.
    """
    found, rows = find_rows(table.sample_key, keys)
    matched, fewer = int(found.sum()), min(len(rows), len(keys))
    if matched < min_match * fewer or (min_match > 0 and not matched):
        raise SnapshotMismatchError(
            f"vade_posterior_init={abbreviated(source)} shares {matched} of its {len(rows)} rows with the {len(keys)} "
            f"rows of this training set. That is {matched / max(fewer, 1):.0%} of the smaller number; at least "
            f"{min_match:.0%} must be shared. Rows match by `id` where that column has another value in each row, and "
            "else by prompt and images; an id 7 is not the id '7', and remove_unused_columns=True hides ids. For "
            "another data set, set vade_posterior_init='prior'."
        )
    alpha, beta = table.alpha[found], table.beta[found]
    trials = discount * (alpha + beta)
    if (trials > MOST_TRIALS).any():
        raise SnapshotCorruptError(
            f"vade_posterior_init={abbreviated(source)} counts {trials.max():g} completions of one row; at most 2**53 "
            "are possible. Use another copy, or an earlier step."
        )
    return WarmStart(source, rows[found], discount * alpha, trials)


def what_to_say(
    warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, num_rows: int, success_reward: str | None
) -> list[str]:
    """Return a line with the source and the number of shared rows, and one if success was another there."""
    facts, matched = table.metadata, len(warm.sample_index)
    names = {"step": "global_step", "model": "base_model", "reward": "success_reward"}
    names["generations a group"] = "num_generations"
    known = ", ".join(f"{name} {_plain(facts[fact])}" for name, fact in names.items() if facts.get(fact) is not None)
    lines = [
        f"Warm start from {warm.source} ({known}): {matched} of its {len(table)} rows are in this training set and "
        f"start with {100 * args.vade_warm_start_discount:g} % of their counts; {len(table) - matched} are not. "
        f"{num_rows - matched} of the {num_rows} rows here start from the prior."
    ]
    here = {
        "success_reward": args.vade_success_reward or success_reward,
        "success_threshold": args.vade_success_threshold,
        "num_generations": args.num_generations,
    }
    if here["success_reward"] is None:
        del here["success_reward"]
    if here["success_threshold"] == AUTO and facts.get("success_threshold") != SPREAD:
        del here["success_threshold"]  # it will be learned from the rewards
    if here := {name: value for name, value in here.items() if name in facts and facts[name] != value}:
        lines.append(
            f"{warm.source} was learned with {abbreviated({name: facts[name] for name in here})}, but this run has "
            f"{here}, so its pass rates mean something else. The run uses them anyway; a smaller "
            "vade_warm_start_discount gives them less weight."
        )
    return lines


def _plain(value: Any) -> str:
    """Return a value from an untrusted file as a short text without control characters."""
    text = abbreviated(value)
    return value if isinstance(value, str) and value.isprintable() and len(value) < len(text) < 200 else text
