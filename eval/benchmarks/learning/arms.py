"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .oracle import OracleSampler

UNIFORM = {"vade_sampler": "uniform"}
VANILLA, DEFAULT, BEST = "vanilla", "balanced", "oracle"
LARGER = "balanced, 64 x 4"
BEST_BATCH, AT_ITS_RATE = "vanilla, best batch", "oracle, rate of balanced"
VANILLA_AT_ITS_RATE = "vanilla, rate of balanced"

# Vanilla GRPO draws 256 rollouts a batch: K groups of G.
SHAPES: dict[str, dict[str, Any]] = {
    VANILLA: UNIFORM,  # 32 groups of 8
    "vanilla, 64 x 4": UNIFORM | {"num_generations": 4},
    "vanilla, 16 x 16": UNIFORM | {"num_generations": 16},
}
TUNED: dict[str, dict[str, Any]] = SHAPES | {
    DEFAULT: {"vade_preset": "balanced"},
    BEST: {},  # it knows every pass rate, and rests as `frontier` does
    # As DAPO's own code: whole generation batches are drawn until one is full of groups with a gradient.
    "dapo": UNIFORM | {"whole_batches": True, "vade_dynamic_sampling": True},
    "paper": {"vade_preset": "paper"},  # Algorithm 1, with its initial pass
}
READ_NO_WORDS = (*SHAPES, VANILLA_AT_ITS_RATE, BEST, AT_ITS_RATE, "dapo", "paper")
# The default, with `vade_posterior_init="column:..."`: a share of 16 answers of another policy for each row. Written
# down on 2026-11-27, before the first run. Prediction against the default: of the base policy +0.01 in staged and
# +0.02 in wide, of the weaker one level in both, of the stronger one -0.01 in both: it takes hard rows for easy ones.
COLUMNS: dict[str, dict[str, Any]] = {
    f"column of {policy}": {"vade_preset": "balanced", "column": policy}
    for policy in ("the base policy", "a weaker one", "a stronger one")
}
# Rules that did not replace the default: records alone. Commit 95439ed6 has their predictions and their code.
TRIED = (
    "short rest",
    "item response",
    "item response, mixture",
    "item response, mixture, features of the policy",
)
ARMS = TUNED | {AT_ITS_RATE: {}, VANILLA_AT_ITS_RATE: UNIFORM, LARGER: {"num_generations": 4}} | COLUMNS
OF_THE_BENCHMARK = {"num_generations": 8, "whole_batches": False, "column": None}


def settings(arm: str, seed: int, of_the_regime: Mapping[str, Any] | None = None) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them, and those of the benchmark."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **OF_THE_BENCHMARK, **(of_the_regime or {}), **ARMS[arm], "seed": seed})


def sampler_of(arm: str, num_samples: int, *, num_groups: int, seed: int, prompts: list[str]) -> Any:
    """A fresh sampler: the oracle, or the one that a trainer with these settings would make."""
    if arm in (BEST, AT_ITS_RATE):
        return OracleSampler(num_samples, seed=seed, cooldown=cooldown_steps(0.2, num_samples, num_groups))
    args = settings(arm, seed)
    return make_sampler(args, num_samples, num_groups=num_groups, stratify=None, variants=None, prompts=prompts)
