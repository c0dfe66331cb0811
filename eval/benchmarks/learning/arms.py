"""The arms of the learning benchmark: who chooses the rows, in which batches, and how often each is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
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
    fill: float = 1.0  # of these places
    order: str = "newest"  # or "most even"

    def __str__(self) -> str:
        named = {"passes": self.passes, "replay": self.replay, "fill": self.fill, "order": self.order}
        usual = {each.name: each.default for each in fields(self)}
        more = [f"{name} {value}" for name, value in named.items() if value != usual[name]]
        return ", ".join([self.rule, f"{self.groups} x {self.size}", *more])

    @staticmethod
    def of(name: str) -> "Arm":
        """Return the arm of this name."""
        rule, batch, *more = name.split(", ")
        kinds = {each.name: type(each.default) for each in fields(Arm)}
        named = {key: kinds[key](value) for key, value in (each.split(" ", 1) for each in more)}
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
