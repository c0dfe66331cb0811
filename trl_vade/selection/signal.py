"""The success signal of a run: the rewards of a group, read as successes or as a spread."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, ObservationError

from .outcomes import (
    GroupOutcomes,
    group_outcomes,
    groups_with_gradient,
    in_groups,
    read_by_total,
    spread_outcomes,
    total_rewards,
)

SPREAD = "spread"  # the threshold for spreads: the share of pairs of completions with different rewards
AUTO = "auto"  # the threshold that is learned: halfway between two reward values, or `SPREAD` with more values
SAYS_SUCCESS = re.compile("accura|correct|answer|exact|match|solve|verif")
SAYS_FORM = re.compile("format|length|tag|style|penal|punish|repeti")
LEARNING = 10  # the number of generation batches from which two values, or the bounds of fractions, are learned
FLAT_SPREAD = 0.99  # the mean spread from which spreads hardly distinguish rows

Threshold = float | str | None


def names_of_success(names: Sequence[str]) -> list[str]:
    """Return the names of the reward functions that suggest success and not form, or the only name."""
    told = [name for name in names if SAYS_SUCCESS.search(name.lower()) and not SAYS_FORM.search(name.lower())]
    return list(names) if len(names) == 1 else told


def success_name(reward_names: Sequence[str], declared: str | None) -> str | None:
    """Return the name of the reward function that means success, or None if the names leave it open.

    Without a declared name it is the only function, or the only one with a name that suggests success (accuracy,
    correct, answer, exact, match, solve, verify) and not form (format, length, ...).

    Raises:
        ConfigurationError: `declared` names no reward function, or several.
    """
    names = list(reward_names)
    if declared is None:
        told = names_of_success(names)
        return told[0] if len(told) == 1 else None
    if names.count(declared) != 1:
        raise ConfigurationError(
            f"vade_success_reward={declared!r} is the name of {names.count(declared)} of the reward functions "
            f"({', '.join(names)}). Set it to one of these names. If two functions share a name, rename one of them."
        )
    return declared


def _say_nothing(message: str) -> None:  # no lambda: a signal may go to another process
    pass


class RewardSignal:
    """A converter from the rewards of generation batches to successes and trials of their rows.

    Args:
        name: the reward function that means success. None stands for the spread of the total reward.
        names: the names of all F reward functions, in the order of TRL's reward table.
        threshold: the smallest reward of a success; None for fractions of a success, of 0 to 1, or of the lowest to
            the highest reward of the first `LEARNING` generation batches if one lies outside; `SPREAD`; or `AUTO`.
        say: called once with each message for the user.
    """

    def __init__(
        self,
        name: str | None,
        names: Sequence[str],
        *,
        threshold: Threshold = AUTO,
        say: Callable[[str], Any] = _say_nothing,
    ):
        self._name, self._names, self.say = name, list(names), say
        self._threshold = SPREAD if name is None else threshold
        self._values: set[float] = set()  # the reward values while the threshold is open; three are enough
        self._seen: tuple[float, float] | None = None  # the lowest and highest reward while bounds are learned
        self._batches = 0
        self._said: set[str] = set()

    @property
    def is_spread(self) -> bool:
        """Whether the successes are spreads."""
        return self._threshold == SPREAD

    @property
    def threshold(self) -> Threshold:
        """The present threshold: a reward, None for fractions, or `SPREAD`."""
        if self._threshold != AUTO:
            return self._threshold
        return sum(self._values) / 2 if len(self._values) == 2 else 0.5

    @property
    def bounds(self) -> tuple[float, float]:
        """The present rewards of a failure and of a full success."""
        low, high = self._seen or (0.0, 1.0)
        if low == high or (low >= 0.0 and high <= 1.0):
            return min(low, 0.0), max(high, 1.0)
        return low, high

    @property
    def facts(self) -> dict[str, Any]:
        """The definition of success, as JSON values. Evidence counts only for the same definition."""
        return {"success_reward": self._name, "success_threshold": self.threshold}

    def outcomes(
        self,
        rewards: NDArray[np.float64],
        sample_index: NDArray[np.int64],
        *,
        weights: NDArray[np.float64],
        normalise: bool = False,
    ) -> GroupOutcomes:
        """Count the successes, trials and gradients of every group, and learn an open threshold or bounds.

        `rewards`, (K*G, F), come from all processes, groups of G side by side, with NaN where a reward function
        returned None. `weights`, (F,), are TRL's `reward_weights`. For `normalise` see `outcomes.rows_with_gradient`.

        Raises:
            ObservationError: a reward is infinite, or the groups have unequal sizes.
        """
        self._refuse_infinite(rewards)
        grouped = in_groups(rewards, sample_index)
        scores = None if self._name is None else rewards[:, self._names.index(self._name)]
        if scores is not None and not np.isnan(scores).all():
            self._learn(scores[~np.isnan(scores)])
        total = total_rewards(grouped, weights, normalise=normalise)
        read = total if scores is None else in_groups(scores, sample_index)
        unread = np.isnan(read).all(axis=1) & ~np.isnan(total).all(axis=1)  # rows of another task
        self._say_what_is_unread(unread, sample_index)
        if self.is_spread:
            outcomes = spread_outcomes(np.where(unread[:, None], total, read), sample_index)
            self._say_where_all_differ(outcomes)
        else:
            outcomes = group_outcomes(scores, sample_index, threshold=self.threshold, bounds=self.bounds)
            outcomes = read_by_total(outcomes, total, unread)
        self._batches += 1
        has_gradient = groups_with_gradient(grouped, weights, normalise=normalise)
        return replace(outcomes, has_gradient=has_gradient, total=total_rewards(grouped, weights))

    def state_dict(self) -> dict[str, Any]:
        """Return the learned values, as JSON values."""
        seen = None if self._seen is None else list(self._seen)
        open_, values = self._threshold == AUTO, sorted(self._values)
        return {"open": open_, "values": values, "seen": seen, "batches": self._batches}

    def adopt(self, facts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Load the learned values of a saved run; a threshold from the settings stays.

        `facts` and `state` are those of the saved run; early releases have an empty state.
        """
        if self._threshold == AUTO and not state.get("open"):
            self._threshold = facts.get("success_threshold")
        self._values = {float(value) for value in state.get("values", [])}
        seen = state.get("seen")
        self._seen = None if seen is None else (float(seen[0]), float(seen[1]))
        self._batches = int(state.get("batches", LEARNING))

    def _learn(self, scores: NDArray[np.float64]) -> None:
        """Learn values and bounds from the scores of the first batches, and warn about settings that do not fit."""
        low, high = float(scores.min()), float(scores.max())
        gave = f"The reward function {self._name!r} gave {low:g} to {high:g}"
        if self._threshold == AUTO:
            self._find_values(scores, gave)
        elif self._threshold is None:
            self._find_bounds(low, high, gave)
        elif not self.is_spread and not self._batches and np.unique(scores).size > 2:
            met = scores.astype(np.float32) >= np.float32(self._threshold)
            if met.min() == met.max():
                self._once(
                    "threshold",
                    f"{gave} in the first generation batch, all {'at or above' if met[0] else 'below'} "
                    f"vade_success_threshold={self._threshold:g}. Every answer counts as "
                    f"{'right' if met[0] else 'wrong'}, so selection learns nothing. Set vade_success_threshold to a "
                    "reward that only some answers reach, or leave it out.",
                )

    def _find_values(self, scores: NDArray[np.float64], gave: str) -> None:
        self._values |= set(np.unique(scores)[:3].tolist())
        if len(self._values) > 2:
            self._threshold, self._values = SPREAD, set()
            self._once(
                "graded",
                f"{gave}, with more than two values. Rows are chosen by the spread of their rewards: the share of "
                "pairs of completions with different rewards. If one reward means a right answer, set "
                "vade_success_threshold to it.",
            )
        elif len(self._values) == 2 and self._batches >= LEARNING:
            self._threshold, self._values = self.threshold, set()

    def _find_bounds(self, low: float, high: float, gave: str) -> None:
        if self._batches < LEARNING:
            self._seen = (low, high) if self._seen is None else (min(low, self._seen[0]), max(high, self._seen[1]))
            if self._seen[0] < 0.0 or self._seen[1] > 1.0:
                self._once(
                    "learned",
                    f"{gave}, outside [0, 1]. Rewards count as fractions of a success between the lowest and the "
                    f"highest reward of the first {LEARNING} generation batches. To fix both, let the function return "
                    "rewards from 0 to 1.",
                )
        elif low < self.bounds[0] or high > self.bounds[1]:
            self._once(
                "clipped",
                f"{gave}, but the bounds learned from the first {LEARNING} generation batches are "
                f"{self.bounds[0]:g} and {self.bounds[1]:g}. A reward outside counts as the nearer bound. Let the "
                "function return rewards from 0 to 1.",
            )

    def _say_what_is_unread(self, unread: NDArray[np.bool_], sample_index: NDArray[np.int64]) -> None:
        if unread.any():
            rows = sample_index[unread]
            self._once(
                "unread",
                f"The reward function {self._name!r} returned None for all completions of {len(rows)} of the "
                f"{len(unread)} rows of a generation batch (rows {', '.join(map(str, rows[:5].tolist()))}"
                f"{', ...' if len(rows) > 5 else ''}). No reward means success for such rows, so they are chosen by "
                "the spread of their total rewards. If another function says when their answers are right, let one "
                "function score all rows, and set vade_success_reward to it.",
            )

    def _say_where_all_differ(self, outcomes: GroupOutcomes) -> None:
        known = outcomes.trials > 0
        if known.any() and outcomes.pass_rate[known].mean() >= FLAT_SPREAD:
            self._once(
                "flat",
                "Nearly all completions of a group have different rewards. The spread is then the same for all rows, "
                "and selection learns nothing. Set vade_success_threshold to the reward of a right answer, or to None "
                f"for fractions of a success. With several reward functions ({', '.join(self._names)}), set "
                "vade_success_reward to the one that means success.",
            )

    def _refuse_infinite(self, rewards: NDArray[np.float64]) -> None:
        """Raise `ObservationError` for infinite rewards: TRL 1.16 would turn them into NaN advantages and weights."""
        infinite = np.isinf(rewards).sum(axis=0).tolist()
        if any(infinite):
            counts = ", ".join(f"{name!r} {n}" for name, n in zip(self._names, infinite, strict=True) if n)
            raise ObservationError(
                f"Infinite rewards in a generation batch of {len(rewards)} completions: {counts}. A reward must be a "
                "finite number, or None if a completion cannot be scored. An infinite one would turn the weights into "
                "NaN. Nothing was updated. Fix the reward function and resume from the last checkpoint."
            )

    def _once(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            self.say(message)
