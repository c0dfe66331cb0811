"""The processed images of a generation batch, once, and columns of numbers in their place.

TRL 1.16 keeps `pixel_values` once for each completion, and shuffles, splits and slices them by their first dimension
alone. A column of whole numbers with the same first dimension and as many dimensions passes all of that. Entry n
stands for row n of the store: a patch (Qwen-VL, GLM-V), an image (Gemma, LLaVA), or all images of a prompt (Idefics).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from ..batch_rows import OF_IMAGES, PIXELS, taken, with_pixels_counted

OF_ROWS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


@dataclass
class PixelStore:
    """Processed images, each once, in host memory.

    Attributes:
        tensors: by name (see `PIXELS`), with an entry in the first dimension for each number.
        of_rows: the rows of the training set that the pixels can be made of again; None if a transform made them.
        older: how many of the last entries are of rows of earlier batches, which are replayed.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    of_rows: list[int] | None = None
    older: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values()), ()))

    def append(self, pixels: dict[str, torch.Tensor]) -> int:
        """Take the pixels of replayed rows in behind those of the batch; return the number of their first entry."""
        first, self.older = len(self), len(PixelStore(pixels))
        for name, new in pixels.items():
            both = [self.tensors[name], new] if first else [new]
            # Pictures of a batch are padded to its largest at their ends (Idefics).
            shape = [max(sizes) for sizes in zip(*(value.shape[1:] for value in both), strict=True)]
            self.tensors[name] = torch.cat([_padded(value, shape) for value in both])
        return first


def _padded(value: torch.Tensor, shape: list[int]) -> torch.Tensor:
    sides = [side for size, own in zip(shape[::-1], value.shape[:0:-1], strict=True) for side in (0, size - own)]
    return F.pad(value, sides)


def distinct(values: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Return the places of the first of each distinct value, and for each value the position of its first there."""
    first: dict[Any, int] = {}
    inverse = [first.setdefault(value, len(first)) for value in values]
    return [values.index(value) for value in first], inverse


def repeated(output: dict[str, Any], counts: list[int], places: list[int]) -> dict[str, Any]:
    """Return what a processor gives out for rows with so many images, for the rows at `places`."""
    split = split_pixel_values_by_grid(with_pixels_counted({**output, "num_images": counts}))
    found = unsplit_pixel_values_by_grid(taken(split, np.array(places)))
    return {name: found.get(name) for name in output}


def kept_once(
    output: dict[str, Any], images: list[tuple[int, ...]], places: list[int], store: PixelStore
) -> dict[str, Any] | None:
    """Return a processor's output for all rows asked for, with numbers in place of pixels, and fill `store`.

    Args:
        output: for the distinct rows.
        images: for each distinct row, the identities of its images.
        places: for each row asked for, the place of its distinct row.
        store: it holds the pixels afterwards, and those of an image that several rows have once.

    Returns:
        The output, or None where it has fields or lengths of an unknown layout. The store is then unchanged.
    """
    pixels = {name: output[name] for name in PIXELS if name in output}
    counts, grid, size = [*map(len, images)], output.get("image_grid_thw"), len(pixels["pixel_values"])
    # TRL 1.16 tells layouts apart likewise. What an entry, or the patches of a grid, stand for:
    by_image = grid is not None or ("pixel_attention_mask" not in output and size == sum(counts))
    units = [image for row in images for image in row] if by_image else images
    lengths = [1] * len(units) if grid is None else grid.prod(-1).tolist()
    if sum(lengths) != size or output.keys() - {*PIXELS, *OF_IMAGES, *OF_ROWS}:
        return None
    at, again = distinct(units)
    if len(at) < len(units):
        rows = torch.arange(size).split(lengths)
        kept = torch.cat([rows[place] for place in at])
        pixels = {name: value[kept] for name, value in pixels.items()}
    numbers = torch.arange(len(pixels["pixel_values"]), dtype=torch.int32).split([lengths[place] for place in at])
    column = torch.cat([numbers[place] for place in again])
    store.tensors = pixels
    columns = {name: column.reshape(-1, *[1] * (value.ndim - 1)) for name, value in pixels.items()}
    return repeated(output | columns, counts, places)
