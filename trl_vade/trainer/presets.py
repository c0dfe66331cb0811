"""The presets, and readers of VADE's settings that take the preset's value where a setting is None."""

from typing import Any

from trl_vade.hub.posteriors.facts import POSTERIOR_INITS

CONSOLES = ("auto", "panel", "lines", "stock")
ON_MISMATCH = ("error", "join", "reset")

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"information_gain": "asymmetric", "signal_aware_decay": False, "cooldown": 0.0},
    "robust": {"information_gain": "symmetric", "signal_aware_decay": True, "cooldown": 0.2},
    "frontier": {"information_gain": "asymmetric", "signal_aware_decay": True, "cooldown": 0.2},
}
"""By preset, the value of each setting `vade_<name>` that is None. `VADEGRPOConfig` describes the presets."""


def setting(args: Any, name: str) -> Any:
    """Return the setting `vade_<name>` of `args`, or the value of the preset or the other settings where it is None.

    `args` is a `VADEGRPOConfig`, or a `GRPOConfig` that went through `grpo_config.with_vade_defaults`.
    """
    value = getattr(args, f"vade_{name}")
    if value is None and name == "prior":
        return "flat" if args.vade_variants is None else "variants"
    if value is None and name != "preset":
        value = PRESETS[args.vade_preset].get(name)
    return value


def warm_start_source(args: Any) -> str | None:
    """Return the Hub id or folder in `vade_posterior_init`, or None if it is one of `POSTERIOR_INITS`."""
    value = setting(args, "posterior_init")
    return None if value in POSTERIOR_INITS else value


def is_adaptive(args: Any) -> bool:
    """Return whether the sampler chooses rows by their posterior. Only `"uniform"` does not."""
    return bool(args.vade_sampler != "uniform")
