"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.presets import setting
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .oracle import OracleSampler
from .peers import SECSampler
from .peers.as_their_authors import SECWithoutReplacement, WholeBOTS

FRONTIER = {"vade_preset": "frontier"}
DEFAULT = "prior by prompt, rest by even draw, at least 0.5"  # the preset `balanced`
PROMPTS = FRONTIER | {"vade_prior": "prompts"}  # a part of the preset `balanced`, which no run can set by itself
REFILLED = {"vade_dynamic_sampling": True}

MAIN: dict[str, dict[str, Any]] = {
    "uniform": {"vade_sampler": "uniform"},
    # As DAPO's own code: whole generation batches are drawn until one is full of groups with a gradient.
    "dapo": {"vade_sampler": "uniform", "whole_batches": True} | REFILLED,
    "paper": {"vade_preset": "paper"},  # Algorithm 1, with its initial pass
    "robust": FRONTIER | {"vade_information_gain": "symmetric"},  # a preset until 2026-11-26
    "frontier": FRONTIER,
    "oracle": {},  # it knows every pass rate, and rests as `frontier` does
}
OTHERS = "eval.benchmarks.learning.peers"
PEERS: dict[str, dict[str, Any]] = {
    "dapo, thrifty": {"vade_sampler": "uniform"} | REFILLED,  # a refill is as large as what is missing
    "mopps": {"vade_sampler": f"{OTHERS}:MoPPSSampler"},
    "bots": {},  # lambda = rho = 0.1, the base policy and a stronger one as its references
    "sec 0.4": {"vade_sampler": f"{OTHERS}:SECSampler"},
    "sec 0.2, without replacement": {},
    "greso": {"vade_sampler": f"{OTHERS}:GRESOSampler"} | REFILLED,
    # prime-rl's gate drops dead groups
    "difficulty pools": {"vade_sampler": f"{OTHERS}:DifficultyPoolSampler"} | REFILLED,
}
CHALLENGERS: dict[str, dict[str, Any]] = {
    # Prediction, from a first study on other machines: with 0.5 the gain in staged stays, and no_headroom gains 0.01.
    **{f"rest {share}": FRONTIER | {"vade_cooldown": share} for share in (0.3, 0.5, 0.8)},
    # A prior from the words of the prompts. Prediction: within 0.01 of the prior by level, without its column.
    "prior by prompt": PROMPTS,
    # A rest for the share of an epoch that even draws would give of groups with a gradient. Thought of after eight
    # seeds of the rests above, which speak in its favour. Prediction: staged, wide and paper_like within 0.008
    # of `frontier`; no interval below vanilla GRPO in the pictures; 0.4 of the oracle's gain.
    "rest by even draw": FRONTIER | {"vade_even_rest": True},
    # Both. Prediction: 0.5 of the oracle's gain, and no interval below vanilla GRPO in the
    # pictures. Seeds 300 to 331 took one step of Newton's method a draw; now each draw has the whole fit.
    "prior by prompt, rest by even draw": PROMPTS | {"vade_even_rest": True},
    "prior by prompt, rest 0.5": PROMPTS | {"vade_cooldown": 0.5},  # prediction: no_headroom +0.01 to both above
    # Written down on 2026-11-25, after eleven seeds of the two arms above, which speak in its favour. Prediction: the
    # pictures within 0.004 of vanilla GRPO, staged +0.025, graded +0.03, and 0.45 of the oracle's gain.
    DEFAULT: {"vade_preset": "balanced"},
}
ABLATIONS: dict[str, dict[str, Any]] = {
    # The paper's own (Table 2), and its rule without the rollouts of the initial pass; at the rate of `paper`.
    "paper, no initial pass": {"vade_preset": "paper", "vade_posterior_init": "prior"},
    "paper, symmetric": {"vade_preset": "paper_symmetric"},
    "paper, greedy": {"vade_preset": "paper_greedy"},
    "paper, last update": {"vade_preset": "paper_last_update"},
}
# The default, with `vade_posterior_init="column:..."`: a share of 16 answers of another policy for each row. Written
# down on 2026-11-27, before the first run. Prediction against the default: of the base policy +0.01 in staged and
# +0.02 in wide, of the weaker one level in both, of the stronger one -0.01 in both: it takes hard rows for easy ones.
COLUMNS: dict[str, dict[str, Any]] = {
    f"column of {policy}": {"vade_preset": "balanced", "column": policy}
    for policy in ("the base policy", "a weaker one", "a stronger one")
}
ARMS = MAIN | PEERS | CHALLENGERS | ABLATIONS | COLUMNS
OF_THE_BENCHMARK = {"num_generations": 8, "whole_batches": False, "column": None}


def settings(arm: str, seed: int, of_the_regime: Mapping[str, Any] | None = None) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them, and those of the benchmark."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **OF_THE_BENCHMARK, **(of_the_regime or {}), **ARMS[arm], "seed": seed})


def sampler_of(
    arm: str,
    num_samples: int,
    *,
    num_groups: int,
    seed: int,
    labels: list[str],
    anchors: NDArray[np.float64] | None = None,
    prompts: list[str] | None = None,
) -> Any:
    """A fresh sampler; the one that a trainer with these settings would make, or that of the arm.

    `anchors`, (N, 2), are the pass rates of BOTS's reference policies.
    """
    args = settings(arm, seed)
    cooldown = cooldown_steps(setting(args, "cooldown"), num_samples, num_groups)
    if arm == "oracle":
        return OracleSampler(num_samples, seed=seed, cooldown=cooldown)
    if arm == "bots":
        return WholeBOTS(anchors, seed=seed)
    if arm == "sec 0.4":
        return SECSampler(num_samples, task=labels, seed=seed, temperature=0.4)
    if arm == "sec 0.2, without replacement":
        return SECWithoutReplacement(num_samples, task=labels, seed=seed, temperature=0.2)
    return make_sampler(args, num_samples, num_groups=num_groups, stratify=None, variants=None, prompts=prompts)
