"""What rows may be left out or moved under TRL's settings, and what the settings of down-sampling mean."""

from typing import Any

from trl_vade.errors import ConfigurationError
from trl_vade.settings import as_pair

from .presets import is_adaptive
from .seams import lacking

SCHEDULES = {"vade_keep_rollouts": (0.25, 1.0), "vade_keep_tokens": (0.2, 1.0)}
"""By setting, the shares at the first and the last step where it is None. D3S names no numbers."""


def down_sampling(args: Any) -> str:
    """Return `vade_down_sampling`. None means "lossless" if that is exact and the sampler adaptive, else "none"."""
    off = reason_against_lossless(args) or lacking("vade_down_sampling") or not is_adaptive(args)
    automatic = "none" if off else "lossless"
    return str(args.vade_down_sampling or automatic)


def schedule(args: Any, name: str) -> tuple[float, float]:
    """Return the shares at the first and at the last step that the setting `name` asks for."""
    value = getattr(args, name)
    return SCHEDULES[name] if value is None else as_pair(value)


def reason_against_lossless(args: Any) -> str | None:
    """Return why rows without an advantage change the weights under these settings of TRL 1.16, or None."""
    if args.beta != 0:
        return f"beta={args.beta}: rows without an advantage have a KL term"
    if reason := _of_micro_batch(args):
        return reason
    if args.gradient_accumulation_steps % args.steps_per_generation:
        return (
            f"steps_per_generation={args.steps_per_generation} does not divide gradient_accumulation_steps="
            f"{args.gradient_accumulation_steps}, so rows would fall into other optimiser steps"
        )
    return None


def _of_micro_batch(args: Any) -> str | None:
    """Return what depends on all rows of a micro-batch, or None."""
    if args.entropy_coef != 0 or args.use_adaptive_entropy:
        return "the entropy bonus (entropy_coef, use_adaptive_entropy) acts on rows without an advantage"
    if args.top_entropy_quantile < 1:
        return f"top_entropy_quantile={args.top_entropy_quantile} is a quantile of the tokens of all rows"
    if args.loss_type == "bnpo":
        return "loss_type='bnpo' divides by the tokens of all rows of a micro-batch"
    return None


def order_is_free(args: Any) -> bool:
    """Return whether the update does not depend on who shares a micro-batch in TRL 1.16, nor a step on what it takes.

    Every other loss is a sum over completions, with factors that the micro-batch does not change.
    """
    per_step, per_batch = args.gradient_accumulation_steps, args.steps_per_generation
    whole = per_step % per_batch == 0 or per_batch % per_step == 0  # else a step takes parts of generation batches
    # D3S chooses tokens within each micro-batch.
    return whole and not _of_micro_batch(args) and args.vade_down_sampling != "d3s"


def refuse_lossless(args: Any, reason: str | None) -> None:
    """Raise `ConfigurationError` if "lossless" was asked for and there is a `reason` against it."""
    if reason and args.vade_down_sampling == "lossless":
        raise ConfigurationError(
            f"vade_down_sampling='lossless', but {reason}. Training without these rows would give other weights. Set "
            "vade_down_sampling='live' to leave them out nevertheless, or 'none' to train on every row."
        )
