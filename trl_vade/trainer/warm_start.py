"""Warm start: a shared row starts with `vade_warm_start_discount` of the counts of another run, and need not rest."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from trl import GRPOConfig

from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotMismatchError, abbreviated
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.selection.signal import AUTO, SPREAD

if TYPE_CHECKING:
    from trl_vade.hub.posteriors.table import PosteriorTable


class WarmStart(NamedTuple):
    """Evidence of another run about rows of the training set."""

    source: str  # as in the setting, with the commit if it is known
    outcomes: GroupOutcomes  # discounted, and without gradients, since no group was generated


def evidence(
    table: "PosteriorTable", keys: NDArray[np.int64], source: str, *, discount: float, min_match: float
) -> WarmStart:
    """Join a posterior of V rows, named `source`, with N rows by their `row_keys.sample_keys`, (N,).

    Fewer shared rows than `min_match` of min(V, N), or none, are a `SnapshotMismatchError`.
    """
    found, rows = find_rows(table.sample_key, keys)
    matched = int(found.sum())
    if matched < min_match * min(len(rows), len(keys)) or (min_match > 0 and not matched):
        raise SnapshotMismatchError(
            f"vade_posterior_init={abbreviated(source)} shares {matched} of its {len(rows)} rows with the {len(keys)} "
            f"rows of this training set; at least {min_match:.0%} of the smaller number must be shared. Rows match by "
            "`id` where each row has another, else by prompt and images. remove_unused_columns=True hides ids. For "
            "another data set, set vade_posterior_init='prior'."
        )
    alpha, beta, none = table.alpha[found], table.beta[found], np.zeros(matched, dtype=np.bool_)
    return WarmStart(source, GroupOutcomes(rows[found], discount * alpha, discount * (alpha + beta), none))


def what_to_say(
    warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, num_rows: int, success_reward: str | None
) -> list[str]:
    """Return a line with the source and the number of shared rows, and one if success was another there."""
    facts, matched = table.metadata, len(warm.outcomes.sample_index)
    shown = ("global_step", "base_model", "success_reward", "num_generations")
    lines = [
        f"Warm start from {warm.source} ({abbreviated({name: facts[name] for name in shown if name in facts})}): "
        f"{matched} of its {len(table)} rows are in this training set and start with "
        f"{100 * args.vade_warm_start_discount:g} % of their counts; {len(table) - matched} are not. "
        f"{num_rows - matched} of the {num_rows} rows here start from the prior."
    ]
    here = {"num_generations": args.num_generations, "success_threshold": args.vade_success_threshold}
    here["success_reward"] = args.vade_success_reward or success_reward or facts.get("success_reward")
    if here["success_threshold"] == AUTO and facts.get("success_threshold") != SPREAD:
        del here["success_threshold"]  # it will be learned from the rewards
    if there := {name: facts[name] for name in here if facts.get(name, here[name]) != here[name]}:
        lines.append(
            f"{warm.source} was learned with {abbreviated(there)}, but this run has "
            f"{ {name: here[name] for name in there} }, so its pass rates mean something else. They are used all the "
            "same; a smaller vade_warm_start_discount gives them less weight."
        )
    return lines
