"""The settings of down-sampling: what they mean together with TRL's, and which of them cannot work."""

from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated

from .presets import is_adaptive

MODES = ("none", "lossless", "live", "rows", "d3s")
SCHEDULES = {"vade_keep_rollouts": (0.25, 1.0), "vade_keep_tokens": (0.2, 1.0)}
"""By setting, the shares at the first and the last step where it is None. D3S names no numbers."""
USED_BY = {"vade_keep_rollouts": ("rows", "d3s"), "vade_keep_tokens": ("d3s",)}


def down_sampling(args: Any) -> str:
    """Return `vade_down_sampling`. None means "lossless" if that is exact and the sampler adaptive, else "none"."""
    automatic = "none" if reason_against_lossless(args) or not is_adaptive(args) else "lossless"
    return str(args.vade_down_sampling or automatic)


def schedule(args: Any, name: str) -> tuple[float, float]:
    """Return the shares at the first and at the last step that the setting `name` asks for."""
    value = getattr(args, name)
    if value is None:
        return SCHEDULES[name]
    shares = list(value) if isinstance(value, list | tuple) else [value]
    return shares[0], shares[-1]


def reason_against_lossless(args: Any) -> str | None:
    """Return why rows without an advantage change the weights under these settings of TRL 1.16, or None."""
    if args.beta != 0:
        return f"beta={args.beta}: rows without an advantage have a KL term"
    if args.entropy_coef != 0 or args.use_adaptive_entropy:
        return "the entropy bonus (entropy_coef, use_adaptive_entropy) acts on rows without an advantage"
    if args.top_entropy_quantile < 1:
        return f"top_entropy_quantile={args.top_entropy_quantile} is a quantile of the tokens of all rows"
    if args.loss_type == "bnpo":
        return "loss_type='bnpo' divides by the tokens of all rows of a micro-batch"
    if args.gradient_accumulation_steps % args.steps_per_generation:
        return (
            f"steps_per_generation={args.steps_per_generation} does not divide gradient_accumulation_steps="
            f"{args.gradient_accumulation_steps}, so rows would fall into other optimiser steps"
        )
    return None


def refuse_lossless(args: Any, reason: str | None) -> None:
    """Raise `ConfigurationError` if "lossless" was asked for and there is a `reason` against it."""
    if reason and args.vade_down_sampling == "lossless":
        raise ConfigurationError(
            f"vade_down_sampling='lossless', but {reason}. Training without these rows would give other weights. Set "
            "vade_down_sampling='live' to leave them out nevertheless, or 'none' to train on every row."
        )


def check_down_sampling(args: Any) -> None:
    """Raise `ConfigurationError` for settings of down-sampling that cannot work."""
    mode = args.vade_down_sampling
    if mode is not None and not (isinstance(mode, str) and mode in MODES):
        raise ConfigurationError(
            f"vade_down_sampling={abbreviated(mode)} is not known. Set it to one of {', '.join(MODES)}, or to None."
        )
    for name, default in SCHEDULES.items():
        value = getattr(args, name)
        if value is None:
            continue
        shares = value if isinstance(value, list | tuple) else [value]
        if len(shares) not in (1, 2) or not all(map(_is_share, shares)):
            raise ConfigurationError(
                f"{name}={abbreviated(value)} is neither a share in (0, 1] nor a pair of them, for the first and the "
                f"last step. Set {list(default)} (the default), or one number."
            )
        if mode not in USED_BY[name]:
            raise ConfigurationError(
                f"{name}={abbreviated(value)} with vade_down_sampling={mode!r}, which does not use it. Set "
                f"vade_down_sampling to {' or '.join(map(repr, USED_BY[name]))}, or {name}=None."
            )
    refuse_lossless(args, reason_against_lossless(args))
    if mode == "d3s" and args.top_entropy_quantile < 1:
        raise ConfigurationError(
            f"vade_down_sampling='d3s' with top_entropy_quantile={args.top_entropy_quantile}: both choose tokens. Set "
            "top_entropy_quantile=1.0, or vade_down_sampling='rows'."
        )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
