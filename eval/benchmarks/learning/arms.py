"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray
from trl_vade.samplers.priors import prompt_words
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .item_response import ItemResponseSampler, ShortRestSampler
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
# Written down on 2026-11-27, before the first run. Prediction against the default, by area:
# short rest: wide +0.02, staged +0.01, nameless +0.01, many_impossible -0.01, no_headroom -0.01, the others level.
# item response: wide +0.03, staged level, nameless -0.01, many_impossible -0.03.
# with a mixture: as that, but many_impossible level, and nameless level.
# with features of the policy: nameless +0.01, hard_pictures +0.002, staged and wide within 0.01 of words.
# 64 x 4: level everywhere.
CHALLENGERS: dict[str, dict[str, Any]] = {
    LARGER: {"num_generations": 4},
    "short rest": {"short_rest": True},
    "item response": {"item_response": "words"},
    "item response, mixture": {"item_response": "words", "mixture": True},
    "item response, mixture, features of the policy": {"item_response": "policy", "mixture": True},
}
# The best two rules on the six seeds, and the default with the batch that vanilla GRPO is best with.
FINALISTS = ("short rest", "item response, mixture, features of the policy", LARGER)
ARMS = TUNED | {AT_ITS_RATE: {}, VANILLA_AT_ITS_RATE: UNIFORM} | COLUMNS | CHALLENGERS
OF_THE_BENCHMARK = {"num_generations": 8, "whole_batches": False, "column": None}
OF_THE_BENCHMARK |= {"short_rest": False, "item_response": None, "mixture": False}


def settings(arm: str, seed: int, of_the_regime: Mapping[str, Any] | None = None) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them, and those of the benchmark."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **OF_THE_BENCHMARK, **(of_the_regime or {}), **ARMS[arm], "seed": seed})


def sampler_of(
    arm: str, num_samples: int, *, num_groups: int, seed: int, prompts: list[str], hidden: Callable[[], FloatArray]
) -> Any:
    """A fresh sampler; the one that a trainer with these settings would make, or that of the arm.

    `hidden` returns the hidden states of the policy at the last tokens of the prompts, (N, F).
    """
    args = settings(arm, seed)
    if arm in (BEST, AT_ITS_RATE):
        return OracleSampler(num_samples, seed=seed, cooldown=cooldown_steps(0.2, num_samples, num_groups))
    if args.item_response:
        rests = {"cooldown": cooldown_steps(0.5, num_samples, num_groups)}
        rests |= {"even_rest": cooldown_steps(1.0, num_samples, num_groups)}
        features = principal(hidden()) if args.item_response == "policy" else words(prompts)
        return ItemResponseSampler(features, seed=seed, mixture=args.mixture, **rests)
    sampler = make_sampler(args, num_samples, num_groups=num_groups, stratify=None, variants=None, prompts=prompts)
    if args.short_rest:
        sampler.__class__ = ShortRestSampler
    return sampler


def words(prompts: list[str]) -> FloatArray:
    """Return which hashed words each prompt has, (N, F), of those that only some have."""
    features = np.unpackbits(prompt_words(prompts), axis=1).astype(np.float64)
    return features[:, features.std(axis=0) > 0]


def principal(states: FloatArray) -> FloatArray:
    """Return the 16 largest principal components, (N, 16), each with a variance of 1."""
    parts = np.linalg.svd(states - states.mean(axis=0), full_matrices=False)[0][:, :16]
    return np.asarray(parts * np.sqrt(len(states)))
