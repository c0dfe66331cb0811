"""The arms of the learning benchmark: who chooses the rows, in which batches, and how often each is trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from trl_vade.checks import IntArray
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.priors import Belief, Errors, Words, prompt_prior
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .oracle import OracleSampler

VANILLA, DEFAULT, ORACLE = "vanilla", "default", "oracle"
FAST_WORDS, SHORT_REST, GROWING = "fast words", "short rest", "growing groups"
RULES: dict[str, dict[str, Any]] = {
    VANILLA: {"vade_sampler": "uniform"},
    DEFAULT: {},
    ORACLE: {},  # it knows every pass rate before each batch, and rests its rows as `frontier` does
    # Looked at on six seeds. Predictions of 2026-11-28, before the first run, against the default, both with
    # replay and two passes. The fit of the words weighs a batch half as much as the one ten batches later: +0.02 in
    # wide, where most rows are unseen, level elsewhere.
    FAST_WORDS: {},
    # A row rests for the share of an epoch that even draws would give of live groups, and no longer where these are
    # rare: +0.02 in staged and many_impossible, level in wide, which has rows enough.
    SHORT_REST: {"vade_cooldown": 0.0},
    # Four completions while a row is unknown, eight where the belief is sharp and near the middle: level. It has
    # fewer rows a batch, and what is sharp today is easy tomorrow.
    GROWING: {},
}
READ_NO_WORDS = (VANILLA, ORACLE)
HALF_LIFE = 10.0  # batches
SHARP, MIDDLE = 8.0, 0.25  # counts of a belief, and how far its mean may be from a half


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
    sampler: Any = make_sampler(settings(arm, seed), num_samples, num_groups=arm.groups, prompts=prompts)
    if arm.rule == FAST_WORDS:
        sampler.prior = lambda: sampler._fit_once("prior", fast_prior, sampler._words, sampler._errors)
    return sampler


def fast_prior(posterior: BetaPosterior, words: Words, errors: Errors) -> Belief:
    """Return `prompt_prior` of counts that halve every ten batches."""
    kept = 0.5 ** ((posterior.step - posterior.last_update) / HALF_LIFE)
    faster: Any = SimpleNamespace(
        visited=posterior.visited,
        last_update=posterior.last_update,
        counts=lambda rows: [counts * kept[rows] for counts in posterior.counts(rows)],
    )
    return prompt_prior(faster, words, errors)


def grown(sampler: Any, rows: IntArray, size: int) -> IntArray:
    """Return the completions of each row, until a batch is full: G of an unknown row, 2G where the belief is sharp."""
    a, b = sampler.belief(rows)
    mean = a / (a + b)
    sizes = np.where((a + b >= SHARP) & (np.abs(mean - 0.5) <= MIDDLE), 2 * size, size)
    return sizes[sizes.cumsum() <= len(rows) * size]
