"""Situations that a prompt selection can meet, each a base policy with a pool; docs/results/learning.md has them.

What selection can win depends on how the pass rates are spread and on how they move. All are tiny Qwen2.5-VL models
(0.3 M parameters) and rows of the testbed, built locally from a seed; the seed changes pool and model.

`frozen.json` holds the date since which no regime has changed, and a digest of each; a run of another one is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trl_vade.testbed.model import SFTSettings
from trl_vade.testbed.rewards import exact_answer_reward
from trl_vade.testbed.scenes import LEVELS

from .chains import (
    MAX_COMPLETION_LENGTH,
    MAX_WRITTEN_LENGTH,
    PRODUCTS,
    TASK,
    WRITTEN,
    ChainSFTSettings,
    SkillsSFTSettings,
    graded_reward,
)


@dataclass(frozen=True)
class Regime:
    """A base policy and a pool.

    Attributes:
        name: Key in `REGIMES`.
        recipe: How the base policy is made; it also decides between pictures and chains.
        parts: Share of each cell in the pool, in any unit: (task, level) -> parts. A chain's level is its length.
        pass_range: Level -> (low, high), the bounds in [0, 1] of the base policy's exact pass rate, both included.
            Rows outside are not taken; a level that is not named takes all rows.
        wrong_labels: Share of the rows to train on whose answer is wrong. They look like the others.
        num_train: Rows to train on.
        temperature: Of sampling, in training and in the score. At 1 the tiny policies still err now and then on what
            they know; at 0.6 their pass rates lie near 0 and 1, as those of large models do.
        num_validation: Rows to validate on, from the other side of the split.
        reward: Texts and right answers -> rewards in training; the score is always the share of right answers.
        settings: Of all arms, where the arm itself says nothing.
        told: Prompt -> the text that the sampler gets of it; None: the prompt.
        held_out: As `parts`, of a skill that is scored and not trained on.
    """

    name: str
    recipe: SFTSettings | ChainSFTSettings
    parts: Mapping[tuple[str, int], int]
    pass_range: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    wrong_labels: float = 0.0
    num_train: int = 512
    num_validation: int = 256
    temperature: float = 1.0
    reward: Callable[[Sequence[str], Sequence[str]], list[float]] = exact_answer_reward
    settings: Mapping[str, Any] = field(default_factory=dict)
    told: Callable[[str], str] | None = None
    held_out: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def max_completion_length(self) -> int:
        """Tokens that the longest answer takes, the end of the turn included."""
        if isinstance(self.recipe, SkillsSFTSettings):
            return MAX_WRITTEN_LENGTH
        return MAX_COMPLETION_LENGTH if isinstance(self.recipe, ChainSFTSettings) else 12

    def quotas(self, size: int) -> dict[tuple[str, int], int]:
        """Return the rows of each cell, `size` in all; each is less than one row off its exact share."""
        edges = np.round(np.cumsum([0, *self.parts.values()]) * size / sum(self.parts.values()))
        return {cell: int(count) for cell, count in zip(self.parts, np.diff(edges), strict=True)}


def _parts(**levels: Sequence[int]) -> dict[tuple[str, int], int]:
    """Return the parts of tasks, given from level 1 on; a level of 0 parts is left out."""
    return {(task, level): n for task, parts in levels.items() for level, n in enumerate(parts, 1) if n}


def without_length(prompt: str) -> str:
    """Return the question of a chain without its number of steps."""
    return re.sub(r"of \d of the digits", "of some of the digits", prompt)


_EQUAL = _parts(**{TASK: (1, 1, 1, 1, 1, 1, 1, 1)})
_MOSTLY_SHORT = ChainSFTSettings(until_loss=0.02, shares=(0.3, 0.3, 0.25, 0.1, 0.03, 0.01, 0.007, 0.003))
_GRADED = {"reward": graded_reward, "settings": {"vade_success_threshold": None}}
_ALL = (
    Regime("paper_like", _MOSTLY_SHORT, _parts(**{TASK: (6, 6, 5, 4, 4, 3, 2, 2)}), temperature=0.6),
    Regime("staged", ChainSFTSettings(), _EQUAL, temperature=0.6),
    Regime("nameless", ChainSFTSettings(), _EQUAL, temperature=0.6, told=without_length),
    Regime("graded", ChainSFTSettings(), _EQUAL, temperature=0.6, **_GRADED),
    Regime("wide", ChainSFTSettings(), _EQUAL, temperature=0.6, num_train=8192),
    Regime(
        "two_skills",
        SkillsSFTSettings(),
        _parts(**{TASK: (1,) * 8, WRITTEN: (1,) * 8}),
        temperature=0.6,
        num_train=1024,
        held_out=_parts(**{PRODUCTS: (1,) * 8}),
    ),
    Regime(
        "many_impossible",
        ChainSFTSettings(),
        _parts(**{TASK: (1, 1, 1, 1, 1, 1)}),
        temperature=0.6,
        wrong_labels=0.45,
    ),
    Regime(
        "hard_pictures",
        SFTSettings(),
        _parts(count=(1, 1), chart=(1, 1), math=(1, 1, 4), colour=(1, 1, 4)),
        pass_range={3: (0.0, 0.02)},
    ),
    Regime(
        "no_headroom",
        SFTSettings(),
        _parts(count=(1, 1, 1), chart=(0, 2), math=(0, 2), colour=(0, 1)),
        pass_range=dict.fromkeys(LEVELS, (0.2, 0.8)),
    ),
)
REGIMES: dict[str, Regime] = {regime.name: regime for regime in _ALL}
