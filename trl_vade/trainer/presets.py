"""The choices that VADE's settings offer, and the presets that stand in where a setting is left open."""

import os
from typing import Any

from trl_vade.hub.posteriors.facts import POSTERIOR_INITS

ON_MISMATCH = ("error", "join", "reset")

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"information_gain": "asymmetric", "signal_aware_decay": False, "cooldown": 0.0},
    "robust": {"information_gain": "symmetric", "signal_aware_decay": True, "cooldown": 0.2},
    "frontier": {"information_gain": "asymmetric", "signal_aware_decay": True, "cooldown": 0.2},
}
"""What `vade_<name>` is where it is None. "paper" is arXiv 2511.18902 to the letter, for others see `grpo_config`."""


def setting(args: Any, name: str) -> Any:
    """The setting `vade_<name>`, from the preset where it is left open.

    `args` may be a plain `GRPOConfig` that went through `grpo_config.with_vade_defaults`.
    """
    value = getattr(args, f"vade_{name}")
    if value is None and name != "preset":
        value = PRESETS[args.vade_preset].get(name)
    return value


def warm_start_source(args: Any) -> str | None:
    """The Hub id or the folder that `vade_posterior_init` names, or None where it is one of `POSTERIOR_INITS`."""
    value = setting(args, "posterior_init")
    return None if value in POSTERIOR_INITS else value


def may_be_source(value: str) -> bool:
    """Whether `value` can name a posterior: a Hub id "user/repo", with or without "@revision", or something here."""
    return "/" in value or os.path.exists(value)


def is_adaptive(args: Any) -> bool:
    """Whether the sampler chooses rows by what it knows of them, as opposed to taking turns."""
    return bool(args.vade_sampler != "uniform")
