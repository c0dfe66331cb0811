"""The order of completions in the micro-batches: those of one image side by side, so that a pass encodes it once."""

from typing import Any

import torch

from ..batch_rows import Batch


def order_is_free(args: Any) -> bool:
    """Return whether the update does not depend on who shares a micro-batch in TRL 1.16, nor a step on what it takes.

    Every other loss is a sum over completions, with factors that the micro-batch does not change.
    """
    per_step, per_batch = args.gradient_accumulation_steps, args.steps_per_generation
    return (
        args.loss_type != "bnpo"  # it divides by the tokens of each micro-batch
        and args.entropy_coef == 0  # its bonus is a mean over each micro-batch
        and not args.use_adaptive_entropy
        and args.top_entropy_quantile >= 1  # a quantile of each micro-batch
        and args.vade_down_sampling != "d3s"  # it chooses tokens within each micro-batch
        and (per_step % per_batch == 0 or per_batch % per_step == 0)  # else a step takes parts of generation batches
    )


def side_by_side(batch: Batch, window: int, *, alone: bool) -> list[int]:
    """Return the places of the completions in an order with those of one image together.

    Args:
        batch: split by completion, with numbers in place of pixels.
        window: completions are moved within windows of so many, such as those of an optimiser step.
        alone: whether this process trains alone. Several processes would wait for the gradients of a vision tower that
            a micro-batch without images does not use, so rows without images stay where TRL put them.

    Returns:
        The places, (B,). Images come in the order of their first completion in the window. Without numbers, nothing
        moves.
    """
    pixels = batch.get("pixel_values")
    size = len(batch["completion_ids"])
    if pixels is None or not len(pixels) or torch.is_floating_point(pixels[0]):
        return list(range(size))
    firsts = [tuple(numbers.flatten()[:1].tolist()) for numbers in pixels]
    if not alone and () in firsts:
        return list(range(size))
    order = []
    for start in range(0, size, window):
        places = range(start, min(start + window, size))
        rank: dict[Any, int] = {}
        for place in places:
            rank.setdefault(firsts[place], len(rank))
        order += sorted(places, key=lambda place: rank[firsts[place]])
    return order
