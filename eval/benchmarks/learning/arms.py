"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from trl_vade.samplers.variants import VariantRows
from trl_vade.trainer.grpo_config import VADE_DEFAULTS
from trl_vade.trainer.selection_choice import make_sampler

from ..oracle import OracleSampler
from .thinning import Thinning

PAPER, FRONTIER = {"vade_preset": "paper"}, {"vade_preset": "frontier"}

MAIN: dict[str, dict[str, Any]] = {
    "uniform": {"vade_sampler": "uniform"},
    "dapo": {"vade_sampler": "uniform", "vade_dynamic_sampling": True},
    "paper": PAPER,
    "robust": {"vade_preset": "robust"},
    "frontier": FRONTIER,
}
MORE: dict[str, dict[str, Any]] = {
    "oracle": {},
    "frontier + dapo": FRONTIER | {"vade_dynamic_sampling": True},
    "paper + initial pass": PAPER | {"vade_posterior_init": "rollout"},
    # The paper's ablations (Table 2).
    "paper, symmetric": PAPER | {"vade_information_gain": "symmetric"},
    "paper, greedy": PAPER | {"vade_sampler": "greedy"},
    "paper, last update": PAPER | {"vade_decay_sampled": 0.0, "vade_decay_unsampled": 1.0},
    # The frontier preset less one of its changes (with the other gain it is the robust preset), or with one more.
    "frontier, lambda_1 always": FRONTIER | {"vade_signal_aware_decay": False},
    "frontier, no cooldown": FRONTIER | {"vade_cooldown": 0.0},
    "frontier, lambda_2 0.99": FRONTIER | {"vade_decay_unsampled": 0.99},
    "frontier, learned prior": FRONTIER | {"vade_prior": "learned"},
    "frontier, prior by level": FRONTIER | {"vade_prior": "learned", "vade_strata": "level"},
    "frontier, share 0.25": FRONTIER | {"vade_uniform_share": 0.25},
    # What the sampler is told of the rewards. By default it is the success of two values, and else the spread.
    "spread": FRONTIER | {"vade_success_threshold": "spread"},
    "fractions": FRONTIER | {"vade_success_threshold": None},
    "threshold 0.5": FRONTIER | {"vade_success_threshold": 0.5},
    "threshold 1": FRONTIER | {"vade_success_threshold": 1.0},
    # Other published rules.
    "mopps": {"vade_sampler": "mopps"},
    "bots": {"vade_sampler": "bots"},
    "sec": {"vade_sampler": "sec", "vade_strata": "level"},
    "difficulty pools": {"vade_sampler": "difficulty_pools"},
    "greso": {"vade_sampler": "greso"},
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
HINTED = {f"{sampler} + {name}": MAIN[sampler] | how for sampler in SAMPLERS for name, how in WAYS.items()}
HINTED["frontier + variants as rows"] |= {"vade_stratify_by": "kind", "vade_strata_shares": {"original": 0.5}}
HINTED["frontier + pairs, random"] = FRONTIER | PAIRS | {"vade_variant_match": "random"}
LEFT = {"kinds_by_steps_left": True}
HINTED |= {
    f"{arm}, kinds by steps left": HINTED[arm] | LEFT for arm in ("frontier + variants as rows", "frontier + pairs")
}
HINTED["frontier + variants of the hopeless"] = FRONTIER | AS_ROWS | {"only_hopeless": 0.1}
HINTED_TUNED = [f"{sampler} + {name}" for sampler in SAMPLERS for name in ("none", "pairs")]
ALL_THINNED = THINNED | THINNED_KL | THINNED_SHARES
ARMS = MAIN | MORE | HINTED | {arm: MAIN[arm.split(" + ")[0]] for arm in ALL_THINNED}


OF_THE_BENCHMARK = {"num_generations": 8, "only_hopeless": None, "kinds_by_steps_left": False}


def settings(arm: str, seed: int) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them, and the number of generations."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **OF_THE_BENCHMARK, **ARMS[arm], "seed": seed})


class OnlyHopeless:
    """A sampler that draws the variants of an original only while its expected pass rate is below a bound."""

    def __init__(self, sampler: Any, variants: VariantRows, bound: float) -> None:
        self._sampler, self._variants, self._bound = sampler, variants, bound
        self.observe, self.use_spreads = sampler.observe, sampler.use_spreads

    def draw(self, k: int) -> Any:
        a, b = self._sampler.belief()
        solvable = (a / (a + b))[self._variants.of] >= self._bound
        return self._sampler.draw(k, exclude=np.flatnonzero(solvable & (self._variants.kind > 0)))


def sampler_of(
    arm: str,
    num_samples: int,
    *,
    num_groups: int,
    num_generations: int,
    seed: int,
    labels: list[str],
    variants: VariantRows | None = None,
) -> Any:
    """A fresh sampler; the one that a trainer with these settings would make."""
    if arm == "oracle":
        sampler = OracleSampler(num_samples, num_generations=num_generations, seed=seed)
        sampler.sees_pass_rates = True  # the loop tells it
        return sampler
    args = settings(arm, seed)
    strata = labels if args.vade_strata else None
    kinds = [variants.kinds[kind] for kind in variants.kind] if variants and args.vade_stratify_by else None
    sampler = make_sampler(args, num_samples, num_groups=num_groups, strata=strata, stratify=kinds, variants=variants)
    return OnlyHopeless(sampler, variants, args.only_hopeless) if variants and args.only_hopeless else sampler
