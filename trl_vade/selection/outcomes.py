"""Gathered rewards and the rows they belong to -> successes and trials of every group."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ObservationError

# Rewards this close are one value: a float32 reward of 0.1 read twice must not look like a spread.
SAME_REWARD = 1e-6


@dataclass(frozen=True)
class GroupOutcomes:
    """What one generation batch of K groups has shown."""

    sample_index: NDArray[np.int64]  # (K,) data set row of each group
    successes: NDArray[np.float64]  # (K,) in [0, trials]; of fractions, or of a spread, their sum
    trials: NDArray[np.float64]  # (K,) completions that got a score, 0..G
    has_gradient: NDArray[np.bool_]  # (K,) True where the total rewards of the group are not all equal
    mixed: NDArray[np.bool_] | None = None  # (K,) True where the signal differs; None: where 0 < successes < trials

    @property
    def effective_gradient_ratio(self) -> float:
        """Share of the scored groups whose rewards differ; NaN when no group was scored."""
        scored = self.trials > 0
        return float(self.has_gradient[scored].mean()) if scored.any() else float("nan")

    @property
    def is_mixed(self) -> NDArray[np.bool_]:
        """(K,) where the signal differs among the completions of a group."""
        return (self.successes > 0) & (self.successes < self.trials) if self.mixed is None else self.mixed

    @property
    def pass_rate(self) -> NDArray[np.float64]:
        """(K,) successes over trials, or the spread; NaN where no completion was scored."""
        with np.errstate(invalid="ignore"):
            return self.successes / self.trials


def group_outcomes(
    rewards: NDArray[np.float64],
    sample_index: NDArray[np.int64],
    *,
    threshold: float | None,
    bounds: tuple[float, float] = (0.0, 1.0),
    has_gradient: NDArray[np.bool_] | None = None,
) -> GroupOutcomes:
    """Count successes and trials of every group.

    A completion without a score (NaN: the reward function returned None) is no trial.

    Args:
        rewards: (K*G,) the success signal of every completion, gathered over ranks, groups of G side by side.
        sample_index: (K,) the row of each group, in the same order.
        threshold: success is a reward of at least this; None takes rewards as fractions of a success.
        bounds: the rewards that are no success and a whole one; a reward outside is taken for the nearer bound.
        has_gradient: (K,) where the total rewards differ; None: this reward is the only one.

    Raises:
        ObservationError: there are not equally many rewards a group.
    """
    grouped = in_groups(rewards, sample_index)  # (K, G)
    scored = ~np.isnan(grouped)
    if threshold is not None:
        # TRL keeps rewards in float32: a reward of 0.7 arrives below the float64 0.7 and must still reach it.
        signal = np.where(scored, grouped.astype(np.float32) >= np.float32(threshold), np.nan)
    else:
        signal = np.clip((grouped - bounds[0]) / (bounds[1] - bounds[0]), 0.0, 1.0)
    return GroupOutcomes(
        sample_index=np.asarray(sample_index, dtype=np.int64),
        successes=np.nansum(signal, axis=1),
        trials=scored.sum(axis=1).astype(np.float64),
        has_gradient=_differ(grouped) if has_gradient is None else has_gradient,
        mixed=_differ(signal),
    )


def spread_outcomes(total: NDArray[np.float64], sample_index: NDArray[np.int64]) -> GroupOutcomes:
    """Count the spread of every group as its successes: of G trials, G times the share of pairs that differ.

    For rewards of 0 and 1 and a pass rate p the share is 2p (1 - p) on average.

    Args:
        total: (K, G) total reward of each completion, NaN where it has none.
        sample_index: (K,) the row of each group.
    """
    scored = (~np.isnan(total)).sum(axis=1).astype(np.float64)
    largest = np.nanmax(np.abs(total), axis=1, initial=1.0)  # (K,)
    differ = np.abs(total[:, :, None] - total[:, None, :]) > SAME_REWARD * largest[:, None, None]  # false for NaN
    pairs = scored * (scored - 1.0)
    trials = np.where(pairs > 0, scored, 0.0)
    successes = trials * differ.sum(axis=(1, 2)) / np.maximum(pairs, 1.0)
    return GroupOutcomes(np.asarray(sample_index, dtype=np.int64), successes, trials, successes > 0, successes > 0)


def in_groups(rewards: NDArray[np.float64], sample_index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (K, G, ...) of (K*G, ...), the rewards of each row's completions, or raise `ObservationError`."""
    num_groups = len(sample_index)
    if num_groups == 0 or len(rewards) % num_groups:
        raise ObservationError(f"{len(rewards)} rewards cannot be split into {num_groups} groups of equal size.")
    return rewards.astype(np.float64).reshape(num_groups, -1, *rewards.shape[1:])


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
    total = total_rewards(rewards, weights, normalise=normalise)
    differ = _differ(total)
    if trained is not None and differ.any():
        away = np.abs(total[differ] - np.nanmean(total[differ], axis=1, keepdims=True))  # (differing groups, G)
        differ[differ] = (trained[differ] & (away > SAME_REWARD * np.nanmax(away, axis=1, keepdims=True))).any(axis=1)
    return differ


def total_rewards(
    rewards: NDArray[np.float64], weights: NDArray[np.float64], *, normalise: bool = False
) -> NDArray[np.float64]:
    """Return (K, G) the sums that advantages are made of, NaN where no reward function gave a score.

    Args: see `groups_with_gradient`.
    """
    unscored = np.isnan(rewards).all(axis=2)  # (K, G)
    if normalise:
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore")  # a column without a score has no mean, and stays NaN
            centred = rewards - np.nanmean(rewards, axis=1, keepdims=True)
            spread = np.nanstd(rewards, axis=1, keepdims=True)
        scale = np.where(_differ(rewards)[:, None], spread + 1e-4, np.inf)  # (K, 1, F)
        rewards = centred / scale
    return np.where(unscored, np.nan, np.nansum(rewards * weights, axis=2))


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
