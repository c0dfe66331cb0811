"""Rows of TRL's prepared batches (1.16): chosen to train on, ordered, taken, joined, masked and cut to their longest.

A batch is a dictionary. Its tensors and lists have one entry a row once `split_pixel_values_by_grid` of TRL has split
the images; a tensor without dimensions is of the whole batch.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray

Batch = dict[str, Any]

OF_PROMPTS = ("prompt_ids", "prompt_mask")
OF_COMPLETIONS = (
    *("completion_ids", "completion_mask", "tool_mask", "advantages", "importance_sampling_ratio"),
    *("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps"),
)
OF_BOTH = ("token_type_ids", "mm_token_type_ids")
"""Entries with a column for each token of the prompt, of the completion, or of both."""
PIXELS = ("pixel_values", "pixel_attention_mask")
OF_IMAGES = ("image_grid_thw", "image_sizes", "image_position_ids")
"""Entries without such columns: those that `images.store` keeps once, and those of each image."""


def has_pixels_by_row(batch: Batch) -> bool:
    """Return whether an entry of `pixel_values` holds all images of a row, as in Idefics3."""
    return batch.get("pixel_attention_mask") is not None and batch.get("spatial_shapes") is None


def with_pixels_counted(batch: Batch) -> Batch:
    """Return the batch with one image a row in `num_images` if an entry of `pixel_values` holds all images of a row.

    TRL 1.16 tells such pixels by their number, which differs from that of the images. Rows of 2, 1, 0 and 1 images
    have as many images as entries, and TRL would take each entry for an image.
    """
    if not has_pixels_by_row(batch):
        return batch
    return batch | {"num_images": [1] * len(batch["pixel_attention_mask"])}


def loss_mask(batch: Batch) -> torch.Tensor:
    """Return the mask, (B, T), of the tokens in the loss."""
    mask = batch["completion_mask"]
    return mask if batch.get("tool_mask") is None else mask * batch["tool_mask"]


def with_gradient(loss: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    """Return the loss, or 0 with a gradient where no trained parameter took part: a tower without an image."""
    if loss.requires_grad:
        return loss
    return 0.0 * next(each for each in model.parameters() if each.requires_grad).sum()


def row_advantages(batch: Batch) -> NDArray[np.float64]:
    """Return one advantage a row, (B,), the mean of its tokens' own, 0 without a token in the loss."""
    mask, values = loss_mask(batch).double(), batch["advantages"].double().nan_to_num(0.0)
    tokens = mask.sum(1)
    if values.dim() > 1:
        values = (values * mask).sum(1) / tokens.clamp(min=1.0)
    return torch.where(tokens > 0, values, 0.0).cpu().numpy()


def taken(batch: Batch, places: NDArray[np.int64]) -> Batch:
    """Return the rows at these places of a batch that is split by row, without entries that are None."""
    index = torch.from_numpy(places)

    def take(value: Any) -> Any:
        if isinstance(value, list):
            return [value[place] for place in places]
        if isinstance(value, torch.Tensor) and value.ndim:
            return value[index.to(value.device)]
        return value

    return {name: take(value) for name, value in batch.items() if value is not None}


def joined(parts: list[Batch], pad_token_id: int = 0) -> Batch:
    """Return one batch of the rows of all parts, which are split by row, padded to the widest.

    The rows of a part without an entry of the others have no image, all tokens in the loss, and no log-probabilities.
    """
    widths = [[part[name].shape[1] for part in parts] for name in ("prompt_ids", "completion_ids")]
    lacking = {"tool_mask": 1.0} | dict.fromkeys(OF_COMPLETIONS[-3:], float("nan"))
    padding = {"prompt_ids": pad_token_id, "completion_ids": pad_token_id, "importance_sampling_ratio": 1.0}

    def join(name: str) -> Any:
        values = [part.get(name) for part in parts]
        known = next((value for value in values if value is not None), None)
        if isinstance(known, list):
            nothing = known[0][:0] if isinstance(known[0], torch.Tensor) else 0
            return [
                row
                for value, part in zip(values, parts, strict=True)
                for row in value or len(part["prompt_ids"]) * [nothing]
            ]
        if not (isinstance(known, torch.Tensor) and known.ndim):
            return known
        # Of the prompt, of the completion, or of both.
        used = name in (*OF_PROMPTS, *OF_BOTH), name in (*OF_COMPLETIONS, *OF_BOTH)
        ends, sizes = ([is_used * width for width in each] for is_used, each in zip(used, widths, strict=True))
        for i, part in enumerate(parts):
            if values[i] is None:
                shape = len(part["prompt_ids"]), ends[i] + sizes[i]
                values[i] = known.new_full(shape, lacking.get(name, 0))
        if all(value.shape[1:] == (end + size,) for value, end, size in zip(values, ends, sizes, strict=True)):
            sides = [(max(ends) - end, max(sizes) - size) for end, size in zip(ends, sizes, strict=True)]
            fill = padding.get(name, 0)
            values = [F.pad(value, side, value=fill) for value, side in zip(values, sides, strict=True)]
        return torch.cat(values)

    return {name: join(name) for name in dict.fromkeys(name for part in parts for name in part)}


def images_to_move(batch: Batch, *, alone: bool) -> list[tuple[int, ...]]:
    """Return the number of the first image of each completion, or (); nothing where completions must stay.

    The batch is split by completion, with numbers in place of pixels; without numbers all stay. If this process trains
    `alone`, all may move. Several would wait for the gradients of a vision tower that a micro-batch without images
    does not use, so completions without images stay.
    """
    pixels = batch.get("pixel_values")
    if pixels is None or not len(pixels) or torch.is_floating_point(pixels[0]):
        return []
    firsts = [tuple(numbers.flatten()[:1].tolist()) for numbers in pixels]
    return firsts if alone or () not in firsts else []


def cut_padding(batch: Batch, multiple: int = 1) -> Batch:
    """Return the batch without the columns that are padding in every row, or as it is where an entry may not fit then.

    Prompts are padded on the left and completions on the right. The widths stay multiples of `multiple`.
    """
    masks = batch["prompt_mask"].flip(1), batch["completion_mask"]
    end, size = widths = [mask.shape[1] for mask in masks]
    used = [int(mask.any(0).cumsum(0).argmax()) + 1 for mask in masks]  # up to the last column with a token
    kept = [min(-(-each // multiple) * multiple, width) for each, width in zip(used, widths, strict=True)]
    columns = {
        **dict.fromkeys(OF_PROMPTS, (end, slice(end - kept[0], end))),
        **dict.fromkeys(OF_COMPLETIONS, (size, slice(0, kept[1]))),
        **dict.fromkeys(OF_BOTH, (end + size, slice(end - kept[0], end + kept[1]))),
    }
    cut = dict(batch)
    for name, value in batch.items():
        of_rows = isinstance(value, torch.Tensor) and name not in (*PIXELS, *OF_IMAGES)
        sizes = {*value.shape[1:]} - {1} if of_rows else set()  # a value of a whole sequence has at most one column
        width, place = columns.get(name, (None, None))
        if sizes == {width}:
            cut[name] = value[:, place]
        # A known entry of another width, or an unknown one that may be of tokens, perhaps shifted by one.
        elif (place and sizes) or any(abs(each - near) <= 1 for each in sizes for near in (end, size, end + size)):
            return batch
    return cut


def ended(trainer: Any, completion_ids: list[list[int]]) -> NDArray[np.bool_]:
    """Return which completions TRL 1.16 counts as ended, not truncated."""
    ends = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
    return np.array([ids[-1] in ends for ids in completion_ids], dtype=bool)


SAME_VARIANCE = 1e-12


def most_varied(advantages: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return the places, (n,) ascending, of the `n` of N `advantages` with the largest variance among such subsets.

    Such a subset holds the lowest and the highest values (D3S, section 3.1; PODS, arXiv 2504.13818, theorem 1). Ties
    are settled alike on all processes: equal values stay in their order, and of equally good subsets the one with the
    fewest values from the low end is taken. `n` outside [0, N] and an infinite advantage or NaN are a `ValueError`.
    """
    values = np.asarray(advantages, dtype=np.float64)
    if not 0 <= n <= len(values) or not np.isfinite(values).all():
        raise ValueError(f"n={n} of {len(values)} advantages: n must be in [0, {len(values)}], the advantages finite.")
    order = np.argsort(values, kind="stable")
    ranked, low = values[order], np.arange(n + 1)
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (ranked, ranked**2))
    first_high = len(values) - (n - low)  # with `low` low values, the high ones begin here
    mean, mean_square = ((part[low] + part[-1] - part[first_high]) / max(n, 1) for part in (sums, squares))
    variance = mean_square - mean**2
    best = int(np.flatnonzero(variance >= variance.max() - SAME_VARIANCE)[0])
    return np.sort(np.concatenate([order[:best], order[first_high[best] :]]))


def first_of(live: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Return the places of the first `size` live rows or groups, ascending; the first others fill them up."""
    return np.sort(np.concatenate([np.flatnonzero(live), np.flatnonzero(~live)])[:size])


def spread(values: NDArray[np.int64], more: int) -> NDArray[np.int64]:
    """Return the places, (B + more,), of B values in ascending order, with `more` others evenly between them."""
    turns = [(np.argsort(np.argsort(values)) + 0.5) / max(len(values), 1), (np.arange(more) + 0.5) / max(more, 1)]
    return np.argsort(np.concatenate(turns), kind="stable")


def side_by_side(pictures: Sequence[Hashable], window: int) -> list[int]:
    """Return the places, (B,), of completions with those of one picture together in each window of so many."""
    order = []
    for start in range(0, len(pictures), window):
        places = range(start, min(start + window, len(pictures)))
        rank: dict[Hashable, int] = {}
        for place in places:
            rank.setdefault(pictures[place], len(rank))
        order += sorted(places, key=lambda place: rank[pictures[place]])
    return order
