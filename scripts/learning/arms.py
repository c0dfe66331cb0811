"""The arms of the learning benchmark: who chooses the rows, as settings of `VADEGRPOConfig`."""

from types import SimpleNamespace
from typing import Any

from trl_vade.config import VADE_DEFAULTS
from trl_vade.peers import OracleSampler
from trl_vade.sampler_choice import make_sampler

PAPER, ROBUST = {"vade_preset": "paper"}, {"vade_preset": "robust"}

MAIN: dict[str, dict[str, Any]] = {
    "uniform": {"vade_sampler": "uniform"},
    "dapo": {"vade_sampler": "uniform", "vade_dynamic_sampling": True},
    "paper": PAPER,
    "robust": ROBUST,
}
MORE: dict[str, dict[str, Any]] = {
    "robust + dapo": ROBUST | {"vade_dynamic_sampling": True},
    "paper + initial pass": PAPER | {"vade_posterior_init": "rollout"},
    # The paper's ablations (Table 2).
    "paper, symmetric": PAPER | {"vade_information_gain": "symmetric"},
    "paper, greedy": PAPER | {"vade_sampler": "greedy"},
    "paper, last update": PAPER | {"vade_decay_sampled": 0.0, "vade_decay_unsampled": 1.0},
    # The robust preset less one of its changes, and with one more.
    "robust, asymmetric": ROBUST | {"vade_information_gain": "asymmetric"},
    "robust, lambda_1 always": ROBUST | {"vade_signal_aware_decay": False},
    "robust, no cooldown": ROBUST | {"vade_cooldown": 0.0},
    "robust, learned prior": ROBUST | {"vade_prior": "learned"},
    "robust, share 0.25": ROBUST | {"vade_uniform_share": 0.25},
    # Other published rules.
    "mopps": {"vade_sampler": "mopps"},
    "bots": {"vade_sampler": "bots"},
    "sec": {"vade_sampler": "sec", "vade_strata": "task"},
    "difficulty pools": {"vade_sampler": "difficulty_pools"},
    "greso": {"vade_sampler": "greso"},
    "oracle": {},
}
ARMS = MAIN | MORE


def settings(arm: str, seed: int) -> SimpleNamespace:
    """All settings of VADE under `arm`, as the trainer has them."""
    return SimpleNamespace(**{**VADE_DEFAULTS, **ARMS[arm], "seed": seed})


def sampler_of(
    arm: str, num_samples: int, *, num_groups: int, num_generations: int, seed: int, tasks: list[str]
) -> Any:
    """A fresh sampler; the one that a trainer with these settings would make."""
    if arm == "oracle":
        sampler = OracleSampler(num_samples, num_generations=num_generations, seed=seed)
        sampler.sees_pass_rates = True  # the loop tells it
        return sampler
    args = settings(arm, seed)
    return make_sampler(args, num_samples, num_groups=num_groups, strata=tasks if args.vade_strata else None)
