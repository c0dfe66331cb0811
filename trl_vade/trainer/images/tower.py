"""The vision tower: pixels in place of the numbers of a pass, and each image encoded once.

`get_image_features` of a model's inner module is the seam. Forward passes call it, and `generate` of transformers 5.23
calls it before the first forward pass. It is replaced within a block alone: left there, a deep copy of the model would
call the tower of the original.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .store import OF_IMAGES, PixelStore, distinct

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
    """Let `model` take the pixels of `store` where a pass has numbers, in the block.

    Args:
        model: the policy or the reference model, wrapped or not.
        store: the pixels.
        once: whether each image of a pass is encoded once; its gradients then add up in another order.
        move: brings a tensor to the device, and to the type, that the model expects.
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
        # By name: by position, LLaVA's `vision_feature_layer` would come twice, as a decorator of transformers 5.24
        # (`merge_with_config_defaults`) adds it by name.
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
