"""The processed images of a generation batch, once, and columns of numbers in their place.

TRL 1.16 keeps `pixel_values` once for each completion, and shuffles, splits and slices them by their first dimension
alone. A column of whole numbers with the same first dimension and as many dimensions passes all of that. Entry n
stands for row n of the store: a patch (Qwen-VL, GLM-V), an image (Gemma, LLaVA), or all images of a prompt (Idefics).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch

OF_ROWS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
OF_IMAGES = ("image_grid_thw", "image_sizes", "image_position_ids")
PIXELS = ("pixel_values", "pixel_attention_mask")
"""Outputs of a processor by what an entry of them belongs to. The last are kept in the store."""


def distinct(values: list[Any]) -> tuple[list[int], list[int]]:
    """Return the places of the first of each distinct value, and for each value the position of its first there."""
    first: dict[Any, int] = {}
    inverse = [first.setdefault(value, len(first)) for value in values]
    return [values.index(value) for value in first], inverse


@dataclass
class PixelStore:
    """Processed images, each once.

    Attributes:
        tensors: by name (see `PIXELS`), with an entry in the first dimension for each number.
        place: moves a tensor to where the store lies.
        of_rows: the rows of the training set that the pixels can be made of again; None if a transform made them.
    """

    place: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    of_rows: list[int] | None = None
    _source: Any = None  # of the tensors, to know them again

    def put(self, pixels: dict[str, torch.Tensor], source: Any) -> None:
        """Keep these pixels in place of others, unless they come from the same `source`."""
        if self._source is not source or self.tensors.keys() != pixels.keys():
            self.tensors = {name: self.place(value) for name, value in pixels.items()}
            self._source = source

    def rows(self, name: str, spans: list[tuple[int, int]]) -> list[torch.Tensor]:
        """Return views of the rows of these spans, neighbours in one."""
        joined: list[tuple[int, int]] = []
        for first, end in spans:
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((first, end))
        return [self.tensors[name][first:end] for first, end in joined]

    @property
    def bytes(self) -> int:
        """Return the size of the pixels."""
        return sum(value.nbytes for value in self.tensors.values())


@dataclass(frozen=True)
class Rows:
    """The distinct rows that a processor has seen, and those asked for.

    Attributes:
        images: for each distinct row, the keys of its images.
        inverse: for each row asked for, the place of its distinct row.
    """

    images: list[list[int]]
    inverse: list[int]


def expanded(output: dict[str, Any], rows: Rows, store: PixelStore) -> dict[str, Any] | None:
    """Return a processor's output for all rows asked for, with numbers in place of pixels, and fill `store`.

    Args:
        output: of the real processor, for the distinct rows.
        rows: those rows.
        store: it holds the pixels afterwards.

    Returns:
        The output, or None where it has fields or lengths of an unknown layout. The store is then unchanged.
    """
    counts = [len(images) for images in rows.images]
    lengths = _lengths(output, counts)
    if output.keys() - {*OF_ROWS, *OF_IMAGES, *PIXELS} or lengths is None:
        return None
    found = {name: _taken(output[name], rows.inverse) for name in OF_ROWS if name in output}
    for name in {*OF_IMAGES} & output.keys():
        split = torch.split(torch.as_tensor(output[name]), counts)
        found[name] = torch.cat([split[place] for place in rows.inverse])
    numbers, pixels = _numbered(output, rows, lengths)
    store.put(pixels, source=output["pixel_values"])
    column = torch.cat([numbers[place] for place in rows.inverse])
    for name in pixels:
        found[name] = column.reshape(-1, *[1] * (output[name].ndim - 1))
    return {name: found[name] for name in output}  # in the processor's order


def _lengths(output: dict[str, Any], counts: list[int]) -> list[list[int]] | None:
    """Return the rows of `pixel_values` of each image, for each row of text; TRL 1.16 tells layouts apart likewise.

    A list with one entry stands for all images of a row together.
    """
    size = len(output["pixel_values"])
    if "image_grid_thw" in output:
        patches = torch.as_tensor(output["image_grid_thw"]).prod(-1).tolist()
        ends = [0, *accumulate(counts)]
        found = [patches[first:end] for first, end in pairwise(ends)]
    elif "pixel_attention_mask" not in output and size == sum(counts):
        found = [[1] * count for count in counts]
    else:
        found = [[1] for _ in counts]
    return found if sum(map(sum, found)) == size else None


def _numbered(
    output: dict[str, Any], rows: Rows, lengths: list[list[int]]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Return the numbers of each distinct row, and the pixels without images that another row has, too."""
    starts: dict[Any, int] = {}
    kept, numbers, first, size = [], [], 0, 0
    for images, parts in zip(rows.images, lengths, strict=True):
        keys = images if len(images) == len(parts) else [tuple(images)]
        mine = []
        for key, length in zip(keys, parts, strict=True):
            if key not in starts or not length:
                starts[key] = size
                kept.append((first, first + length))
                size += length
            mine.append(torch.arange(starts[key], starts[key] + length, dtype=torch.int32))
            first += length
        numbers.append(torch.cat(mine) if mine else torch.empty(0, dtype=torch.int32))
    pixels = {name: output[name] for name in PIXELS if name in output}
    if size < first:
        pixels = {name: torch.cat([value[a:b] for a, b in kept]) for name, value in pixels.items()}
    return numbers, pixels


def _taken(value: Any, places: list[int]) -> Any:
    return value[places] if isinstance(value, torch.Tensor) else [value[place] for place in places]
