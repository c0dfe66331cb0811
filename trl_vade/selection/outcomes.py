"""The outcomes of groups, computed from gathered rewards: successes, trials and gradients."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

SAME_REWARD = 1e-6  # Rewards this close are equal: float32 rewards differ by rounding.


@dataclass(frozen=True)
class GroupOutcomes:
    """The outcomes of one generation batch of K groups."""

    sample_index: NDArray[np.int64]  # (K,) the row of each group
    successes: NDArray[np.float64]  # (K,) in [0, trials]; for fractions and spreads their sum
    trials: NDArray[np.float64]  # (K,) scored completions, in [0, G]
    has_gradient: NDArray[np.bool_]  # (K,) True if the total rewards of the group differ
    total: NDArray[np.float64] | None = None  # (K, G) the weighted sum of all rewards, NaN without a score

    @property
    def is_mixed(self) -> NDArray[np.bool_]:
        """A mask, (K,), of the groups that are neither all right nor all wrong."""
        return (self.successes > 0) & (self.successes < self.trials)

    @property
    def pass_rate(self) -> NDArray[np.float64]:
        """The successes over trials, or the spread, (K,); NaN without a scored completion."""
        with np.errstate(invalid="ignore"):
            return self.successes / self.trials


def group_outcomes(
    rewards: NDArray[np.float64],
    sample_index: NDArray[np.int64],
    *,
    threshold: float | None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> GroupOutcomes:
    """Count the successes and trials of K groups of the `rewards`, (K*G,), where NaN is not counted.

    `threshold` is the smallest reward of a success; None takes rewards as fractions of it, between the `bounds`.
    """
    grouped = in_groups(rewards, sample_index)  # (K, G)
    scored = ~np.isnan(grouped)
    if threshold is not None:
        # TRL keeps rewards in float32, where 0.7 is below the float64 0.7 and must still reach it.
        signal = np.where(scored, grouped.astype(np.float32) >= np.float32(threshold), np.nan)
    else:
        signal = np.clip((grouped - bounds[0]) / (bounds[1] - bounds[0]), 0.0, 1.0)
    return GroupOutcomes(
        sample_index=np.asarray(sample_index, dtype=np.int64),
        successes=np.nansum(signal, axis=1),
        trials=scored.sum(axis=1).astype(np.float64),
        has_gradient=differ(grouped),
    )


def spread_outcomes(total: NDArray[np.float64], sample_index: NDArray[np.int64]) -> GroupOutcomes:
    """Count the spreads of `total` rewards, (K, G): of G trials, G times the share of unequal pairs are successes."""
    scored = (~np.isnan(total)).sum(axis=1).astype(np.float64)
    largest = np.nanmax(np.abs(total), axis=1, initial=1.0)  # (K,)
    differ = np.abs(total[:, :, None] - total[:, None, :]) > SAME_REWARD * largest[:, None, None]  # false for NaN
    pairs = scored * (scored - 1.0)
    trials = np.where(pairs > 0, scored, 0.0)
    successes = trials * differ.sum(axis=(1, 2)) / np.maximum(pairs, 1.0)
    return GroupOutcomes(np.asarray(sample_index, dtype=np.int64), successes, trials, successes > 0)


def read_by_total(outcomes: GroupOutcomes, total: NDArray[np.float64], unread: NDArray[np.bool_]) -> GroupOutcomes:
    """Return pass rates with those of the `unread` groups, (K,), from the spread 2p (1 - p) of their `total`, (K, G).

    Such a group counts as the rate p, at most 1/2, of right answers that differ as often.
    """
    spread = spread_outcomes(total, outcomes.sample_index)
    share = spread.successes / np.maximum(spread.trials, 1.0)
    rate = (1.0 - np.sqrt(np.maximum(1.0 - 2.0 * share, 0.0))) / 2.0
    return replace(
        outcomes,
        successes=np.where(unread, rate * spread.trials, outcomes.successes),
        trials=np.where(unread, spread.trials, outcomes.trials),
    )


def in_groups(rewards: NDArray[np.float64], sample_index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return rewards (K*G, ...) of K rows as (K, G, ...)."""
    return rewards.astype(np.float64).reshape(len(sample_index), -1, *rewards.shape[1:])


def rows_with_gradient(
    rewards: NDArray[np.float64], weights: NDArray[np.float64], *, normalise: bool = False
) -> NDArray[np.bool_]:
    """Return a mask, (K, G), of the completions whose total reward (see `total_rewards`) is not their group's mean.

    Rewards within a millionth of each other (relative to the largest, if that is above 1) are equal: TRL's advantages
    of such a group are rounding errors. A completion without any score has no advantage.
    """
    total = total_rewards(rewards, weights, normalise=normalise)
    moves, live = np.zeros(total.shape, dtype=bool), differ(total)
    if live.any():
        away = np.abs(total[live] - np.nanmean(total[live], axis=1, keepdims=True))  # (live groups, G)
        moves[live] = away > SAME_REWARD * np.nanmax(away, axis=1, keepdims=True)  # false for NaN
    return moves


def total_rewards(
    rewards: NDArray[np.float64], weights: NDArray[np.float64], *, normalise: bool = False
) -> NDArray[np.float64]:
    """Return the total rewards, (K, G), NaN without any score.

    `rewards`, (K, G, F), are NaN where a reward function returned None, and `weights`, (F,), TRL's `reward_weights`.
    `normalise` scales each reward by its spread in the group first, as "normalize_then_sum" does.
    """
    unscored = np.isnan(rewards).all(axis=2)  # (K, G)
    if normalise:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore")  # a column without a score stays NaN
            centred = rewards - np.nanmean(rewards, axis=1, keepdims=True)
            spread = np.nanstd(rewards, axis=1, keepdims=True)
        scale = np.where(differ(rewards)[:, None], spread + 1e-4, np.inf)  # (K, 1, F)
        rewards = centred / scale
    return np.where(unscored, np.nan, np.nansum(rewards * weights, axis=2))


def differ(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the groups in which the values along axis 1 differ, ignoring NaN."""
    known = ~np.isnan(values)
    lowest, highest = np.where(known, values, np.inf).min(axis=1), np.where(known, values, -np.inf).max(axis=1)
    return highest - lowest > SAME_REWARD * np.where(known, np.abs(values), 0.0).max(axis=1, initial=1.0)
