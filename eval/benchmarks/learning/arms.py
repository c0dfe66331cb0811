"""The arms of the learning benchmark: who chooses the rows, in which batches, and how often each is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .oracle import OracleSampler

VANILLA, DEFAULT, ORACLE = "vanilla", "default", "oracle"
RULES: dict[str, dict[str, Any]] = {
    VANILLA: {"vade_sampler": "uniform"},
    DEFAULT: {},
    ORACLE: {},  # it knows every pass rate before each batch, and rests its rows as `frontier` does
}
READ_NO_WORDS = (VANILLA, ORACLE)


@dataclass(frozen=True)
class Arm:
    """A rule of choice, and how its batches are trained on. Its text is its name in the records."""

    rule: str
    groups: int = 64
    size: int = 4  # completions of a group
    passes: int = 1  # `num_iterations`
    replay: int = 0  # A, the batches whose live groups may fill free places

    def __str__(self) -> str:
        more = [f"passes {self.passes}"] * (self.passes > 1) + [f"replay {self.replay}"] * (self.replay > 0)
        return ", ".join([self.rule, f"{self.groups} x {self.size}", *more])

    @staticmethod
    def of(name: str) -> "Arm":
        """Return the arm of this name."""
        rule, batch, *more = name.split(", ")
        named = {key: int(value) for key, value in (each.split(" ") for each in more)}
        return Arm(rule, *map(int, batch.split(" x ")), **named)


def settings(arm: Arm, seed: int, of_the_regime: Mapping[str, Any] | None = None) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them."""
    more = {"seed": seed, "num_generations": arm.size}
    return SimpleNamespace(**{**VADE_DEFAULTS, **(of_the_regime or {}), **RULES[arm.rule], **more})


def sampler_of(arm: Arm, num_samples: int, *, seed: int, prompts: list[str]) -> Any:
    """A fresh sampler: the oracle, or the one that a trainer with these settings would make."""
    if arm.rule == ORACLE:
        return OracleSampler(num_samples, seed=seed, cooldown=cooldown_steps(0.2, num_samples, arm.groups))
    return make_sampler(settings(arm, seed), num_samples, num_groups=arm.groups, prompts=prompts)
