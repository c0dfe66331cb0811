"""Situations that a prompt selection can meet, each a base policy with a pool to train on.

What selection can win depends on how the pass rates are spread and on how they move. All are tiny Qwen2.5-VL models
(0.3 M parameters) and rows of the testbed, built locally from a seed; the seed changes pool and model.

How they came about. First versions of three regimes had nothing to win, for any rule. So `paper_like`, `staged` and
`many_impossible` got a temperature of 0.6, and `many_impossible` was rebuilt from pictures into chains with wrong
answers. The package's default was chosen among eleven variants in two of the final regimes, on other seeds than those
reported. `graded` was made to compare reward signals. `wide` was described, and accepted by the pass rates of its base
policy, before any arm was run on it. `frozen.json` holds the date since which no regime has changed, and a digest of
each; a run of another regime is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trl_vade.testbed.rewards import exact_answer_reward
from trl_vade.testbed.scenes import LEVELS
from trl_vade.testbed.sft import SFTSettings

from .chains import MAX_COMPLETION_LENGTH, TASK, ChainSFTSettings, HintedSFTSettings, graded_reward


@dataclass(frozen=True)
class Regime:
    """A base policy and a pool.

    Attributes:
        name: Key in `REGIMES`.
        description: What the regime stands for, and what is in it.
        recipe: How the base policy is made; it also decides between pictures and chains.
        parts: Share of each cell in the pool, in any unit: (task, level) -> parts. A chain's level is its length.
        pass_range: Level -> (low, high), the bounds in [0, 1] of the base policy's exact pass rate, both included.
            Rows outside are not taken; a level that is not named takes all rows.
        wrong_labels: Share of the rows to train on whose answer is wrong. They look like the others.
        num_train: Rows to train on.
        temperature: Of sampling, in training and in the score. At 1 the tiny policies still err now and then on what
            they know; at 0.6 their pass rates lie near 0 and 1, as those of large models do.
        num_validation: Rows to validate on, taken in the same way from the other side of the split.
        reward: Texts and right answers -> rewards in training; the score is always the share of right answers.
        settings: Of all arms, where the arm itself says nothing.
    """

    name: str
    description: str
    recipe: SFTSettings | ChainSFTSettings
    parts: Mapping[tuple[str, int], int]
    pass_range: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    wrong_labels: float = 0.0
    num_train: int = 512
    num_validation: int = 256
    temperature: float = 1.0
    reward: Callable[[Sequence[str], Sequence[str]], list[float]] = exact_answer_reward
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def max_completion_length(self) -> int:
        """Tokens that the longest answer takes, the end of the turn included."""
        return MAX_COMPLETION_LENGTH if isinstance(self.recipe, ChainSFTSettings) else 12

    def quotas(self, size: int) -> dict[tuple[str, int], int]:
        """Return the rows of each cell, `size` in all; each is less than one row off its exact share."""
        edges = np.round(np.cumsum([0, *self.parts.values()]) * size / sum(self.parts.values()))
        return {cell: int(count) for cell, count in zip(self.parts, np.diff(edges), strict=True)}


def _parts(**levels: Sequence[int]) -> dict[tuple[str, int], int]:
    """Return the parts of tasks, given from level 1 on; a level of 0 parts is left out."""
    return {(task, level): n for task, parts in levels.items() for level, n in enumerate(parts, 1) if n}


_ALL = (
    Regime(
        name="paper_like",
        description=(
            "The course that the paper reports of vanilla GRPO: soon only about one group in ten has a gradient. "
            "Chains, of which the policy masters the short ones, half knows the middle ones and rarely completes the "
            "longest; what is on the frontier becomes mastered, and few rows are out of reach. Short chains have more "
            "rows."
        ),
        recipe=ChainSFTSettings(until_loss=0.02, shares=(0.3, 0.3, 0.25, 0.1, 0.03, 0.01, 0.007, 0.003)),
        parts=_parts(**{TASK: (6, 6, 5, 4, 4, 3, 2, 2)}),
        temperature=0.6,
    ),
    Regime(
        name="staged",
        description=(
            "Skills that unlock one another: chains of 1 to 8 steps in equal shares, for a policy that half knows how "
            "to take a step. Single steps are mastered, two and three are on the frontier, and from five on hardly a "
            "completion is right; half of the pool is out of reach until the shorter chains are learned."
        ),
        recipe=ChainSFTSettings(),
        parts=_parts(**{TASK: (1, 1, 1, 1, 1, 1, 1, 1)}),
        temperature=0.6,
    ),
    Regime(
        name="graded",
        description=(
            "`staged` with graded rewards: in training a chain earns the share of its steps that are right before the "
            "first slip, and a sampler is told that share as a fraction of a success. The score is still the share of "
            "chains that are right throughout."
        ),
        recipe=ChainSFTSettings(),
        parts=_parts(**{TASK: (1, 1, 1, 1, 1, 1, 1, 1)}),
        temperature=0.6,
        reward=graded_reward,
        settings={"vade_success_threshold": None},
    ),
    Regime(
        name="wide",
        description=(
            "A large data set: `staged` with 4,096 rows. A run has 3,840 places for groups, so that even draws see no "
            "row twice, and a rule must judge rows that it has hardly met."
        ),
        recipe=ChainSFTSettings(),
        parts=_parts(**{TASK: (1, 1, 1, 1, 1, 1, 1, 1)}),
        num_train=4096,
        temperature=0.6,
    ),
    Regime(
        name="hinted",
        description=(
            "Questions out of reach whose variants are not: chains of 2 to 8 steps in equal shares, for a policy that "
            "can read hints. A hint gives the first sums of the answer. Most long chains are solved with a hint that "
            "leaves one step, and few without one. The rows to validate on have no hints."
        ),
        recipe=HintedSFTSettings(),
        parts=_parts(**{TASK: (0, 1, 1, 1, 1, 1, 1, 1)}),
        temperature=0.6,
    ),
    Regime(
        name="hinted_long",
        description=(
            "The policy of `hinted` and chains of 6 to 8 steps alone: most originals are out of reach, and no shorter "
            "chains lead up to them, only hints."
        ),
        recipe=HintedSFTSettings(),
        parts=_parts(**{TASK: (0, 0, 0, 0, 0, 1, 1, 1)}),
        temperature=0.6,
    ),
    Regime(
        name="many_impossible",
        description=(
            "A pool with much that can never be learned: the policy of `staged` and chains of 1 to 6 steps, of whose "
            "answers 45 % are wrong. The rows to validate on are right."
        ),
        recipe=ChainSFTSettings(),
        parts=_parts(**{TASK: (1, 1, 1, 1, 1, 1)}),
        wrong_labels=0.45,
        temperature=0.6,
    ),
    Regime(
        name="hard_pictures",
        description=(
            "A pool with much that is too hard: pictures for the quickstart's policy. Half of the rows are products "
            "of digits and colours of corners (level 3) that it gets right less than one time in fifty, of which most "
            "stay so; the other half are all tasks at levels 1 and 2 in equal shares."
        ),
        recipe=SFTSettings(),
        parts=_parts(count=(1, 1), chart=(1, 1), math=(1, 1, 4), colour=(1, 1, 4)),
        pass_range={3: (0.0, 0.02)},
    ),
    Regime(
        name="no_headroom",
        description=(
            "A pool that was chosen well beforehand: pictures that the quickstart's policy gets right between 20 % "
            "and 80 % of the time. Nine in ten of the groups that are drawn evenly have a gradient, and selection "
            "has nothing to win before rows are mastered."
        ),
        recipe=SFTSettings(),
        parts=_parts(count=(1, 1, 1), chart=(0, 2), math=(0, 2), colour=(0, 1)),
        pass_range=dict.fromkeys(LEVELS, (0.2, 0.8)),
    ),
)
REGIMES: dict[str, Regime] = {regime.name: regime for regime in _ALL}
