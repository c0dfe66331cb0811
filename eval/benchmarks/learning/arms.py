"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.samplers.problems import VariantRows
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.presets import setting
from trl_vade.trainer.selection_choice import cooldown_steps, make_sampler

from .oracle import OracleSampler
from .peers import SECSampler
from .peers.as_their_authors import SECWithoutReplacement, WholeBOTS
from .thinning import Thinning

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
SIGNALS: dict[str, dict[str, Any]] = {
    # What the sampler is told of the rewards. By default it is the success of two values, and else the spread.
    "spread": FRONTIER | {"vade_success_threshold": "spread"},
    "fractions": FRONTIER | {"vade_success_threshold": None},
    "threshold 0.5": FRONTIER | {"vade_success_threshold": 0.5},
    "threshold 1": FRONTIER | {"vade_success_threshold": 1.0},
}
TRAINING = {
    # What is trained on. Without a choice, rollouts with an advantage of 0 have no gradient: the same run with every
    # rollout and without those.
    "lossless": Thinning(),
    "rows": Thinning("batch", 0.25),
    "d3s": Thinning("batch", (0.25, 1.0), (0.2, 1.0)),
    "d1s": Thinning("live", 0.25),  # within the group
    "pods": Thinning("group", 0.25, renormalised=True),
}
SHARES = {
    "lossless": Thinning(),
    "rows 0.125": Thinning("batch", 0.125),
    "rows 0.25": Thinning("batch", 0.25),
    "rows 0.5": Thinning("batch", 0.5),
    "rows 0.25 to 1": Thinning("batch", (0.25, 1.0)),
    "tokens 0.2": Thinning("batch", 1.0, 0.2),
    "tokens 0.5": Thinning("batch", 1.0, 0.5),
}
KL = {"kl": Thinning(beta=0.01), "kl on live rows": Thinning(beta=0.01, kl_on="live")}
SAMPLERS = ("uniform", "frontier")
THINNED = {f"{sampler} + {name}": how for sampler in SAMPLERS for name, how in TRAINING.items()}
THINNED_TUNED = {arm: how for arm, how in THINNED.items() if how != Thinning()}  # lossless is the main arm
THINNED_KL = {f"{sampler} + {name}": how for sampler in SAMPLERS for name, how in KL.items()}
THINNED_SHARES = {f"frontier + {name}": how for name, how in SHARES.items()}
K4 = {"num_generations": 4}
"""Settings of an arm with 64 groups of 4 in a generation batch, in place of 32 groups of 8."""
AS_ROWS = K4 | {"vade_variants": "of", "vade_variant_groups": 0}
PAIRS = K4 | {"vade_variants": "of"}
WAYS: dict[str, dict[str, Any]] = {
    # What becomes of the variants of the regime `hinted`.
    "none, 32x8": {},
    "none": K4,
    "variants as rows": AS_ROWS,
    "pairs": PAIRS,
    "pairs, local+global": PAIRS | {"vade_advantage": "local+global"},
    "pairs, diva": PAIRS | {"vade_advantage": "diva"},
}
# The results also hold arms of `frontier` with variants, from when it had a belief of its own about them.
HINTED = {f"uniform + {name}": MAIN["uniform"] | how for name, how in WAYS.items()}
HINTED |= {f"frontier + {name}": FRONTIER | WAYS[name] for name in ("none, 32x8", "none")}
HINTED_TUNED = [arm for arm in HINTED if arm.endswith((" + none", " + pairs"))]
ALL_THINNED = THINNED | THINNED_KL | THINNED_SHARES
ARMS = MAIN | PEERS | CHALLENGERS | ABLATIONS | SIGNALS | HINTED
ARMS |= {arm: MAIN[arm.split(" + ")[0]] for arm in ALL_THINNED}


OF_THE_BENCHMARK = {
    "num_generations": 8,
    "whole_batches": False,
}


def settings(arm: str, seed: int, of_the_regime: Mapping[str, Any] | None = None) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them, and those of the benchmark."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **OF_THE_BENCHMARK, **(of_the_regime or {}), **ARMS[arm], "seed": seed})


def sampler_of(
    arm: str,
    num_samples: int,
    *,
    num_groups: int,
    num_generations: int,
    seed: int,
    labels: list[str],
    variants: VariantRows | None = None,
    anchors: NDArray[np.float64] | None = None,
    prompts: list[str] | None = None,
) -> Any:
    """A fresh sampler; the one that a trainer with these settings would make, or that of the arm.

    `anchors`, (N, 2), are the pass rates of BOTS's reference policies.
    """
    args = settings(arm, seed)
    cooldown = cooldown_steps(setting(args, "cooldown"), num_samples, num_groups)
    if arm == "oracle":
        sampler = OracleSampler(num_samples, num_generations=num_generations, seed=seed, cooldown=cooldown)
        sampler.sees_pass_rates = True  # the loop tells it
        return sampler
    if arm == "bots":
        return WholeBOTS(anchors, seed=seed)
    if arm == "sec 0.4":
        return SECSampler(num_samples, task=labels, seed=seed, temperature=0.4)
    if arm == "sec 0.2, without replacement":
        return SECWithoutReplacement(num_samples, task=labels, seed=seed, temperature=0.2)
    stratify = labels if args.vade_stratify_by else None
    how = {"num_groups": num_groups, "stratify": stratify, "variants": variants, "prompts": prompts}
    return make_sampler(args, num_samples, **how)
