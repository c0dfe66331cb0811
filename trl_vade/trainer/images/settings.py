"""The settings of images: what they mean together with TRL's, and which of them cannot work."""

from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated

from ..success_checks import is_number

GROUPINGS = ("none", "step", "batch")
MOST_AHEAD = 4096
"""GiB. A larger number is a slip."""


def reason_against_grouping(args: Any) -> str | None:
    """Return which setting makes the update depend on who shares a micro-batch in TRL 1.16, or None.

    Every other loss is a sum over completions, with factors that the micro-batch does not change.
    """
    if args.loss_type == "bnpo":
        return "loss_type='bnpo' divides by the tokens of each micro-batch"
    if args.entropy_coef != 0 or args.use_adaptive_entropy:
        return "the entropy bonus (entropy_coef, use_adaptive_entropy) is a mean over each micro-batch"
    if args.top_entropy_quantile < 1:
        return f"top_entropy_quantile={args.top_entropy_quantile} is a quantile of each micro-batch"
    if args.vade_down_sampling == "d3s":
        return "vade_down_sampling='d3s' chooses tokens within each micro-batch"
    per_step, per_batch = args.gradient_accumulation_steps, args.steps_per_generation
    if per_step % per_batch and per_batch % per_step:
        return (
            f"neither of gradient_accumulation_steps={per_step} and steps_per_generation={per_batch} divides the "
            "other, so an optimiser step takes parts of generation batches"
        )
    return None


def check_images(args: Any) -> None:
    """Raise `ConfigurationError` for settings of images that cannot work."""
    for name in ("vade_images_once", "vade_tower_once", "vade_pixels_on_device"):
        value = getattr(args, name)
        if not isinstance(value, bool) and not (value is None and name == "vade_tower_once"):
            raise ConfigurationError(f"{name}={abbreviated(value)} is neither True nor False. Set a bool.")
    wanted = args.vade_group_images
    if wanted is not None and not (isinstance(wanted, str) and wanted in GROUPINGS):
        raise ConfigurationError(
            f"vade_group_images={abbreviated(wanted)} is not known. Set it to one of {', '.join(GROUPINGS)}, or None."
        )
    ahead = args.vade_pixels_ahead
    if not is_number(ahead) or not 0 <= ahead <= MOST_AHEAD:
        raise ConfigurationError(
            f"vade_pixels_ahead={abbreviated(ahead)} is not a number of GiB from 0 to {MOST_AHEAD}. Set 0 to process "
            "images when their generation batch is due."
        )
    grouped = wanted in ("step", "batch")
    if not args.vade_images_once and (args.vade_tower_once or grouped or args.vade_pixels_on_device or ahead):
        raise ConfigurationError(
            "vade_images_once=False with vade_tower_once, vade_group_images, vade_pixels_on_device or "
            "vade_pixels_ahead: these need images that are kept once. Leave them out, or set vade_images_once=True."
        )
    if grouped and (reason := reason_against_grouping(args)):
        refuse_grouping(args, reason)


def refuse_grouping(args: Any, reason: str) -> None:
    """Raise `ConfigurationError`, since `reason` makes another order of completions another loss."""
    raise ConfigurationError(
        f"vade_group_images={args.vade_group_images!r}, but {reason}. Another order would be another loss. Set "
        "vade_group_images='none', or leave it at None."
    )


def grouping(args: Any, *, tower_once: bool, router_loss: bool) -> str:
    """Return `vade_group_images`. None means "step" if that is exact and the tower encodes each image once.

    Raises:
        ConfigurationError: completions are to be grouped, but the model has a router loss.
    """
    wanted = args.vade_group_images
    if router_loss and wanted in ("step", "batch"):
        refuse_grouping(args, "the router loss of this mixture-of-experts model is a mean over each micro-batch")
    exact = reason_against_grouping(args) is None and not router_loss
    return str(wanted or ("step" if tower_once and exact else "none"))
