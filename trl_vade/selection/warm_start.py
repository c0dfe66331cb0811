"""Warm start: a shared row starts with `vade_warm_start_discount` of the counts of another run, and need not rest."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotMismatchError, abbreviated

from .outcomes import GroupOutcomes
from .success import AUTO, SPREAD


def evidence(
    keys: IntArray, saved: tuple[IntArray, FloatArray, FloatArray], source: str, *, discount: float, min_match: float
) -> GroupOutcomes:
    """Join another run's V rows, the keys, alpha and beta in `saved`, with the N rows here by their keys.

    The outcomes are discounted, and without gradients, since no group was generated. Fewer shared rows than
    `min_match` of min(V, N), or none, are a `SnapshotMismatchError` about `source`.
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

    Args:
        source: the name of the other run.
        facts: of that run.
        here: `num_generations`, `success_threshold` and `success_reward` of this one; the latter None if unknown.
        rows: the numbers of its rows, of those here, and of those in both.
        discount: the share of its counts that are taken over.
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
