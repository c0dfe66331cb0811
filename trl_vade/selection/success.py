"""The success signal of a run: the rewards of a group, read as successes or as a spread."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import ConfigurationError, ObservationError

from .outcomes import GroupOutcomes, differ, group_outcomes, in_groups, read_by_total, spread_outcomes, total_rewards

SPREAD = "spread"  # the threshold for spreads: the share of pairs of completions with different rewards
AUTO = "auto"  # the threshold that is learned: halfway between two reward values, or `SPREAD` with more
SAYS_SUCCESS = re.compile("accura|correct|answer|exact|match|solve|verif")
SAYS_FORM = re.compile("format|length|tag|style|penal|punish|repeti")
LEARNING = 10  # the number of generation batches from which two values, or the bounds of fractions, are learned
FLAT_SPREAD = 0.99  # the mean spread from which spreads hardly distinguish rows


def names_of_success(names: Sequence[str]) -> list[str]:
    """Return the names of the reward functions that suggest success and not form, or the only name."""
    told = [name for name in names if SAYS_SUCCESS.search(name.lower()) and not SAYS_FORM.search(name.lower())]
    return list(names) if len(names) == 1 else told


def success_name(reward_names: Sequence[str], declared: str | None) -> str | None:
    """Return the `declared` reward function, or the only one of `names_of_success`; None if the names leave it open.

    A declared name that is not that of exactly one function is a `ConfigurationError`.
    """
    if declared is None:
        told = names_of_success(reward_names)
        return told[0] if len(told) == 1 else None
    if (count := reward_names.count(declared)) != 1:
        raise ConfigurationError(
            f"vade_success_reward={declared!r} is the name of {count} of the reward functions "
            f"({', '.join(reward_names)}). Set it to one of these names. If two share a name, rename one of them."
        )
    return declared


class RewardSignal:
    """A converter from the rewards of generation batches to successes and trials of their rows.

    `name` is the reward function that means success, of the `names` of all F in TRL's order; None: the spread of the
    total reward. `threshold` is the smallest reward of a success, `SPREAD`, `AUTO`, or None for fractions of it: of 0
    to 1, or of the rewards of the first `LEARNING` batches if one lies outside. `say` gets each message for the user.
    """

    def __init__(
        self,
        name: str | None,
        names: Sequence[str],
        *,
        threshold: float | str | None = AUTO,
        say: Callable[[str], Any] = str,  # no lambda: a signal may go to another process
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
    def threshold(self) -> float | str | None:
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

        `rewards`, (K*G, F), come from all processes, groups of G side by side. An infinite one, from which TRL 1.16
        would make NaN weights, is an `ObservationError`. For `weights` and `normalise` see `total_rewards`.
        """
        infinite = zip(self._names, np.isinf(rewards).sum(axis=0).tolist(), strict=True)
        if counts := {name: count for name, count in infinite if count}:
            raise ObservationError(
                f"Infinite rewards in a generation batch of {len(rewards)} completions: {counts}. A reward must be a "
                "finite number, or None if a completion cannot be scored. Nothing was updated. Fix the reward "
                "function and resume from the last checkpoint."
            )
        grouped = in_groups(rewards, sample_index)
        total = total_rewards(grouped, weights, normalise=normalise)
        read = total if self._name is None else grouped[:, :, self._names.index(self._name)]
        if self._name is not None and (scores := read[~np.isnan(read)]).size:
            self._learn(scores)
        unread = np.isnan(read).all(axis=1) & ~np.isnan(total).all(axis=1)  # rows of another task
        if self.is_spread:
            outcomes = spread_outcomes(np.where(unread[:, None], total, read), sample_index)
            known = outcomes.trials > 0
            if known.any() and outcomes.pass_rate[known].mean() >= FLAT_SPREAD:
                self._once(
                    "flat",
                    "Nearly all completions of a group have different rewards, so selection learns nothing from their "
                    "spread. Set vade_success_threshold to the reward of a right answer, or to None for fractions of "
                    f"a success, and vade_success_reward to the one of {', '.join(self._names)} that means success.",
                )
        else:
            outcomes = group_outcomes(read.ravel(), sample_index, threshold=self.threshold, bounds=self.bounds)
            outcomes = read_by_total(outcomes, total, unread)
        self._batches += 1
        return replace(outcomes, has_gradient=differ(total), total=total_rewards(grouped, weights))

    def state_dict(self) -> dict[str, Any]:
        """Return the learned values, as JSON values."""
        learned = {"values": sorted(self._values), "seen": self._seen and list(self._seen)}
        return {"open": self._threshold == AUTO, **learned, "batches": self._batches}

    def adopt(self, facts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Load the learned values from the `facts` and the `state` of a saved run; a threshold that is set stays."""
        if self._threshold == AUTO and not state.get("open"):
            self._threshold = facts.get("success_threshold")
        self._values, seen = set(state.get("values", ())), state.get("seen")
        self._seen = seen and (seen[0], seen[1])
        self._batches = state.get("batches", LEARNING)

    def _learn(self, scores: NDArray[np.float64]) -> None:
        low, high = float(scores.min()), float(scores.max())
        gave = f"The reward function {self._name!r} gave {low:g} to {high:g}"
        if self._threshold == AUTO:
            self._values |= set(np.unique(scores)[:3].tolist())
            if len(self._values) > 2:
                self._threshold, self._values = SPREAD, set()
                self.say(
                    f"{gave}, with more than two values. Rows are chosen by the spread of their rewards, the share of "
                    "pairs that differ. If one reward means a right answer, set vade_success_threshold to it."
                )
            elif len(self._values) == 2 and self._batches >= LEARNING:
                self._threshold, self._values = self.threshold, set()
        elif self._threshold is None:
            if self._batches < LEARNING:
                before = self._seen or (low, high)
                self._seen = min(low, before[0]), max(high, before[1])
            if low < 0.0 or high > 1.0:
                self._once(
                    "bounds",
                    f"{gave}, outside [0, 1]. Rewards count as fractions of a success between the lowest and the "
                    f"highest one of the first {LEARNING} generation batches. Rewards of 0 to 1 need no such bounds.",
                )

    def _once(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            self.say(message)
