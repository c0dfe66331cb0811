"""Gathered rewards and the rows they belong to -> successes and trials of every group."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, ObservationError

# Rewards this close are one value: a float32 reward of 0.1 read twice must not look like a spread.
SAME_REWARD = 1e-6


@dataclass(frozen=True)
class GroupOutcomes:
    """What one generation batch of K groups has shown."""

    sample_index: NDArray[np.int64]  # (K,) data set row of each group
    successes: NDArray[np.float64]  # (K,) in [0, trials]; fractions of successes where the threshold is None
    trials: NDArray[np.float64]  # (K,) completions that got a score, 0..G
    has_gradient: NDArray[np.bool_]  # (K,) True where the scores of the group are not all equal

    @property
    def effective_gradient_ratio(self) -> float:
        """Share of the scored groups whose success signal has a spread; NaN when no group was scored.

        With a threshold this is `information.effective_gradient_ratio(successes, trials)`. With fractions it is not:
        a group of eight 0.5 has 4 successes of 8 trials and no spread.
        """
        scored = self.trials > 0
        return float(self.has_gradient[scored].mean()) if scored.any() else float("nan")

    @property
    def pass_rate(self) -> NDArray[np.float64]:
        """(K,) successes over trials; NaN where no completion was scored."""
        with np.errstate(invalid="ignore"):
            return self.successes / self.trials


def success_column(reward_names: Sequence[str], declared: str | None) -> int:
    """Column, in TRL's (K*G, F) reward table, of the reward function that decides success.

    Raises:
        ConfigurationError: if `declared` is no reward function's name, is the name of several, or is missing although
            there are several reward functions.
    """
    names = list(reward_names)
    if declared is None:
        if len(names) == 1:
            return 0
        raise ConfigurationError(
            f"There are {len(names)} reward functions ({', '.join(names)}) and vade_success_reward is not set. A "
            "row's pass rate needs one success signal; a weighted sum of rewards is not one. Set vade_success_reward "
            "to the name of the function that says whether the answer is right."
        )
    if names.count(declared) != 1:
        raise ConfigurationError(
            f"vade_success_reward={declared!r} is the name of {names.count(declared)} of the reward functions "
            f"({', '.join(names)}). Set it to one of these names; where two functions share one, rename one of them."
        )
    return names.index(declared)


def refuse_infinite(rewards: NDArray[np.floating], names: Sequence[str]) -> None:
    """Raise `ObservationError` if a reward, (K*G, F), is infinite.

    The advantage of its group would be NaN, and with the next update every weight of the model (TRL 1.16).
    """
    infinite = np.isinf(rewards).sum(axis=0).tolist()
    if any(infinite):
        counts = ", ".join(f"{name!r} {count}" for name, count in zip(names, infinite, strict=True) if count)
        raise ObservationError(
            f"Infinite rewards in a generation batch of {len(rewards)} completions: {counts}. A reward must be a "
            "finite number, or None where a completion cannot be scored; an infinite one turns the weights into NaN. "
            "Nothing was updated: mend the reward function, and resume from the last checkpoint."
        )


def group_outcomes(
    rewards: NDArray[np.float64], sample_index: NDArray[np.int64], *, threshold: float | None, name: str = "reward"
) -> GroupOutcomes:
    """Count successes and trials of every group.

    A completion without a score (NaN: the reward function returned None) is no trial.

    Args:
        rewards: (K*G,) the success signal of every completion, gathered over ranks, groups of G side by side.
        sample_index: (K,) the row of each group, in the same order.
        threshold: success is a reward of at least this; None takes rewards in [0, 1] as fractions of a success.
        name: of the reward function, for the error.

    Raises:
        ObservationError: if there are not equally many rewards a group, or, with `threshold=None`, a reward is
            outside [0, 1].
    """
    num_groups = len(sample_index)
    if num_groups == 0 or rewards.size % num_groups:
        raise ObservationError(f"{rewards.size} rewards cannot be split into {num_groups} groups of equal size.")
    grouped = rewards.astype(np.float64).reshape(num_groups, -1)  # (K, G)
    scored = ~np.isnan(grouped)
    if threshold is not None:
        # TRL keeps rewards in float32: a reward of 0.7 arrives below the float64 0.7 and must still reach it.
        signal = np.where(scored, grouped.astype(np.float32) >= np.float32(threshold), 0.0)
    else:
        signal = np.where(scored, grouped, 0.0)
        if ((signal < 0.0) | (signal > 1.0)).any():
            raise ObservationError(
                f"The reward function {name!r} gave {signal.min():g} to {signal.max():g}. With "
                "vade_success_threshold=None its rewards are fractions of a success and must lie in [0, 1]. Scale "
                "them, or set vade_success_threshold to the reward from which an answer counts as right."
            )
    lowest = np.where(scored, signal, np.inf).min(axis=1)
    highest = np.where(scored, signal, -np.inf).max(axis=1)
    return GroupOutcomes(
        sample_index=np.asarray(sample_index, dtype=np.int64),
        successes=signal.sum(axis=1),
        trials=scored.sum(axis=1).astype(np.float64),
        has_gradient=highest - lowest > SAME_REWARD,
    )


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
