"""The processed images of a generation batch, once, and columns of numbers in their place.

TRL 1.16 keeps `pixel_values` once for each completion, and shuffles, splits and slices them by their first dimension
alone. A column of whole numbers with the same first dimension and as many dimensions passes all of that. Entry n
stands for row n of the store: a patch (Qwen-VL, GLM-V), an image (Gemma, LLaVA), or all images of a prompt (Idefics).

The pixels stand in for the numbers of a pass at `get_image_features` of a model's inner module. Forward passes call
it, and `generate` of transformers 5.23 calls it before the first one. It is replaced within a block alone: left
there, a deep copy of the model would call the tower of the original.
"""

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
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
            for place, value in enumerate(both):
                missing = zip(shape[::-1], value.shape[:0:-1], strict=True)
                both[place] = F.pad(value, [side for size, own in missing for side in (0, size - own)])
            self.tensors[name] = torch.cat(both)
        return first


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

    `output` is of the distinct rows, with the identities of the `images` of each. `places` has the place of its
    distinct row for each row asked for. The store gets the pixels, of an image of several rows once. None, and an
    unchanged store, where the output has fields or lengths of an unknown layout.
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


FEATURES = ("pooler_output", "deepstack_features")
"""Results of `get_image_features` with an entry for each image. The second (Qwen3-VL) is a list of these by layer."""


def inner_of(model: nn.Module) -> nn.Module | None:
    """Return the module that encodes images: the innermost with `get_image_features`. None for a text model."""
    found = [module for module in model.modules() if hasattr(type(module), "get_image_features")]
    return found[-1] if found else None


def has_dropout(model: nn.Module) -> bool:
    """Return whether a part of the vision tower has dropout. The tower is all but the text model."""
    inner = inner_of(model)
    rates = ("p", "dropout", "attention_dropout", "attn_dropout", "hidden_dropout")
    tower = {*inner.modules()} - {*inner.get_decoder().modules()} if inner is not None else ()
    found = [getattr(module, rate, None) for module in tower for rate in rates]
    return any(isinstance(value, float) and value > 0 for value in found)


@contextmanager
def pixels_in_place(
    model: nn.Module, store: PixelStore, *, once: bool, move: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Let `model`, wrapped or not, take the pixels of `store` where a pass has numbers, in the block.

    `once` encodes each image of a pass once; its gradients then add up in another order. `move` brings a tensor to the
    device, and to the type, that the model expects.
    """
    inner = inner_of(model)
    if inner is None or not store.tensors:
        yield
        return
    inner.get_image_features = _with_pixels(inner.get_image_features, store, once, move)
    try:
        yield
    finally:
        del inner.get_image_features


def _with_pixels(original: Any, store: PixelStore, once: bool, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)  # transformers reads the signature
    def features(*positional: Any, **named: Any) -> Any:
        given = signature.bind(*positional, **named).arguments
        # By name, as a decorator of transformers 5.24 (`merge_with_config_defaults`) adds LLaVA's layers by name.
        given |= given.pop("kwargs", {})
        if given["pixel_values"].is_floating_point():  # of a batch that went TRL's way
            return original(**given)
        numbers, grid = given["pixel_values"].flatten().cpu(), given.get("image_grid_thw")
        images = numbers.split([1] * len(numbers) if grid is None else grid.prod(-1).tolist())
        at, again = distinct([int(image[0]) for image in images])
        rows, places = torch.cat([images[place] for place in at]), slice(None)
        if not once:  # a row that comes several times still goes to the device once
            at = again = [*range(len(images))]
            rows, places = numbers.unique(return_inverse=True)
        given |= {name: move(value[rows])[places] for name, value in store.tensors.items()}
        given |= {name: given[name][at] for name in OF_IMAGES if given.get(name) is not None}
        found = original(**given)
        if len(at) < len(images):
            for name in FEATURES:
                value = getattr(found, name, None)
                if isinstance(value, torch.Tensor) and len(value) != len(at):
                    # Idefics3 before transformers 5.18: an entry for each picture; a row's are padded with zeros.
                    value = value.split(given["pixel_values"].flatten(2).any(-1).sum(-1).tolist())
                    setattr(found, name, torch.cat(_repeated(value, again)))
                elif value is not None:
                    setattr(found, name, _repeated(value, again))
        return found

    return features


def _repeated(value: Any, places: list[int]) -> Any:
    """Return the entries of `value` for each image of the pass; a list of lists has these for each layer."""
    if isinstance(value, torch.Tensor):
        return value[places]
    if isinstance(value[0], list | tuple):
        return [_repeated(layer, places) for layer in value]
    return [value[place] for place in places]
