"""Which groups have a gradient, and which of them make up a batch.

A group has a gradient where the rewards that TRL makes advantages of, the weighted sum, are not all equal. That is not
the declared success signal, which the posterior learns from: it may be the same throughout such a group, and may
differ in a group whose sum is constant.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from .feedback import SAME_REWARD


def groups_with_gradient(
    rewards: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    normalise: bool = False,
    trained: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """(K,) whether the advantages of each group's completions differ, and one that is trained on has some.

    Rewards that differ by a millionth (of the largest, where that is above 1) are equal: float32 sums do by rounding.
    A completion that no reward function scored has no advantage, and a group with fewer than two others no gradient.

    Args:
        rewards: (K, G, F) of each completion; NaN where a reward function gave none.
        weights: (F,) `reward_weights`.
        normalise: `multi_objective_aggregation="normalize_then_sum"`: each reward is scaled by its spread in the group
            before they are summed.
        trained: (K, G) completions that are not masked; None for all.
    """
    unscored = np.isnan(rewards).all(axis=2)  # (K, G)
    if normalise:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore")  # a column without a score has no mean, and stays NaN
            centred = rewards - np.nanmean(rewards, axis=1, keepdims=True)
            spread = np.nanstd(rewards, axis=1, keepdims=True)
        scale = np.where(_differ(rewards)[:, None], spread + 1e-4, np.inf)  # (K, 1, F)
        rewards = centred / scale
    total = np.where(unscored, np.nan, np.nansum(rewards * weights, axis=2))
    differ = _differ(total)
    if trained is not None and differ.any():
        away = np.abs(total[differ] - np.nanmean(total[differ], axis=1, keepdims=True))  # (differing groups, G)
        differ[differ] = (trained[differ] & (away > SAME_REWARD * np.nanmax(away, axis=1, keepdims=True))).any(axis=1)
    return differ


def _differ(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether those along axis 1 that are not NaN are not all equal."""
    known = ~np.isnan(values)
    lowest = np.where(known, values, np.inf).min(axis=1)
    highest = np.where(known, values, -np.inf).max(axis=1)
    largest = np.where(known, np.abs(values), 0.0).max(axis=1)
    return highest - lowest > SAME_REWARD * np.maximum(largest, 1.0)


def accepted_groups(has_gradient: NDArray[np.bool_], num_groups: int) -> NDArray[np.int64]:
    """The groups to train on, in the order in which they were drawn.

    Args:
        has_gradient: (M,) of all groups that were generated.
        num_groups: K of a batch, whose size TRL needs to be fixed: the first groups without a gradient fill it up, and
            with refills that were rounded up the last ones with a gradient may be too many.
    """
    with_gradient, without = np.flatnonzero(has_gradient), np.flatnonzero(~has_gradient)
    return np.sort(np.concatenate([with_gradient, without])[:num_groups])
