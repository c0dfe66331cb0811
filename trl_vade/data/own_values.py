"""Copies of decoded rows, so that each completion owns its values.

TRL's data loader decodes a row once for each completion. An environment, a rollout function or a reward function may
then change a list, a prompt or an image in place, unseen by other completions. Copies keep this property.
"""

import copy
import datetime
import decimal
import uuid
from contextlib import suppress
from typing import Any

import numpy as np
import PIL.Image
import torch

_IMMUTABLE = str | bytes | int | float | complex | None | datetime.date | datetime.time | datetime.timedelta
_IMMUTABLE |= decimal.Decimal | uuid.UUID | np.generic
_PLAIN = {str, bytes, int, float, bool, type(None)}


def own_values(row: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `row` that shares no mutable value with it.

    Copying an image takes a third of the time of decoding it, and memory is as in stock TRL
    (`eval.benchmarks.own_values`, figures in eval/LOG.md). Copy-on-write is no option: Pillow's read-only images
    refuse `image.load()[x, y] = colour`, which works in stock TRL.

    Raises:
        TypeError: a value cannot be copied, since it may hold a file or a pointer: a video decoder, an animated image,
            or an object from a transform. Load the row again instead.
    """
    memo: dict[int, Any] = {}
    _copy_leaves(row, memo)
    return copy.deepcopy(row, memo)


def own_values_or_same(row: dict[str, Any]) -> dict[str, Any]:
    """Return `own_values(row)`, or the row itself if a value cannot be copied."""
    try:
        return own_values(row)
    except TypeError:
        return row


def _copy_leaves(value: Any, memo: dict[int, Any]) -> None:
    """Put copies of images and tensors into the `memo` for a `deepcopy` of `value`."""
    if type(value) is list and {*map(type, value)} <= _PLAIN:
        memo[id(value)] = value.copy()  # `deepcopy` takes milliseconds for long lists (embeddings, token ids)
    elif type(value) in (dict, list, tuple, set):
        for part in value.values() if type(value) is dict else value:
            _copy_leaves(part, memo)
    elif type(value) is torch.Tensor:
        memo[id(value)] = value.clone()  # a `deepcopy` of a view would copy its base, the whole batch
    elif isinstance(value, PIL.Image.Image):
        memo[id(value)] = _picture(value)
    elif not (isinstance(value, _IMMUTABLE) or (type(value) is np.ndarray and not value.dtype.hasobject)):
        raise TypeError(f"A value of type {type(value).__qualname__} cannot be copied.")


def _picture(image: PIL.Image.Image) -> PIL.Image.Image:
    """Copy an image with its class, format and metadata."""
    if getattr(image, "is_animated", False):
        raise TypeError("An animated image reads its frames from a file, which copies would share.")
    image.load()
    copied = type(image).__new__(type(image))
    for name, value in vars(image).items():
        vars(copied)[name] = value
        with suppress(TypeError):  # Pillow's readers, which are done after one frame
            vars(copied)[name] = copy.deepcopy(value)
    copied.im = image.im.copy()
    return copied
