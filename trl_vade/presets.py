"""The choices that VADE's settings offer, and the presets that stand in where a setting is left open."""

from typing import Any

SAMPLERS = ("thompson", "greedy", "uniform", "mopps", "bots", "sec", "difficulty_pools", "greso")
PEERS = SAMPLERS[3:]
INFORMATION_GAINS = ("asymmetric", "symmetric")
POSTERIOR_INITS = ("prior", "rollout")
PRIORS = ("flat", "learned")
ON_MISMATCH = ("error", "join", "reset")

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"information_gain": "asymmetric", "signal_aware_decay": False, "cooldown": 0.0},
    "robust": {"information_gain": "symmetric", "signal_aware_decay": True, "cooldown": 0.2},
    "frontier": {"information_gain": "asymmetric", "signal_aware_decay": True, "cooldown": 0.2},
}
"""What `vade_<name>` is where it is None. "paper" is arXiv 2511.18902 to the letter; for the others see `config`."""


def vade(args: Any, name: str) -> Any:
    """The setting `vade_<name>`, from the preset where it is left open.

    `args` may be a plain `GRPOConfig` that went through `config.with_vade_defaults`.
    """
    value = getattr(args, f"vade_{name}")
    if value is None and name != "preset":
        value = PRESETS[args.vade_preset].get(name)
    return value


def chooses(args: Any) -> bool:
    """Whether the sampler chooses rows by what it knows of them, as opposed to taking turns."""
    return bool(args.vade_sampler != "uniform")
