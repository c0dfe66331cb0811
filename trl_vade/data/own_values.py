"""Copies of rows that are decoded once, so that each completion has its row's values to itself.

TRL's loader decodes a row once for each of its completions. So an environment, a rollout function or a reward function
may keep a list of the row, append to its prompt or draw into its picture: the other completions see nothing of it.
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

_UNCHANGEABLE = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    np.generic,
)
_PLAIN = {str, bytes, int, float, bool, type(None)}


def own_values(row: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `row` that shares no value with it that can be changed in place.

    A picture is copied in Pillow's memory, in a third of the time of decoding it again, and memory is then as in stock
    TRL (`eval.benchmarks.own_values`, figures in eval/LOG.md). Pixels are not shared until they are changed: a picture
    that Pillow holds read-only refuses `image.load()[x, y] = colour`, which works in stock TRL.

    Raises:
        TypeError: the row has a value of another kind (the decoder of a video, an object that a transform has made,
            an animated picture). It may hold a file or a pointer, so only loading the row again gives a second one.
    """
    memo: dict[int, Any] = {}
    _copy_leaves(row, memo)
    return copy.deepcopy(row, memo)


def own_values_or_same(row: dict[str, Any]) -> dict[str, Any]:
    """Return `own_values(row)`, or the row itself where it has a value that cannot be copied."""
    try:
        return own_values(row)
    except TypeError:
        return row


def _copy_leaves(value: Any, memo: dict[int, Any]) -> None:
    """Put the copies of pictures and tensors into the `memo` of a `deepcopy` of `value`."""
    if type(value) is list and {*map(type, value)} <= _PLAIN:
        memo[id(value)] = value.copy()  # long ones (an embedding, token ids) take `deepcopy` some milliseconds
    elif type(value) in (dict, list, tuple, set):
        for part in value.values() if type(value) is dict else value:
            _copy_leaves(part, memo)
    elif type(value) is torch.Tensor:
        memo[id(value)] = value.clone()  # a `deepcopy` of a view copies all that it is a view of: the whole batch
    elif isinstance(value, PIL.Image.Image):
        memo[id(value)] = _picture(value)
    elif not (isinstance(value, _UNCHANGEABLE) or (type(value) is np.ndarray and not value.dtype.hasobject)):
        raise TypeError(f"A value of the type {type(value).__qualname__} cannot be copied.")


def _picture(image: PIL.Image.Image) -> PIL.Image.Image:
    """Copy a picture with its class, so that its format stays, and all that Pillow notes of its file."""
    if getattr(image, "is_animated", False):
        raise TypeError("The frames of an animated picture are read from its file, which copies would share.")
    image.load()
    copied = type(image).__new__(type(image))
    for name, value in vars(image).items():
        vars(copied)[name] = value
        with suppress(TypeError):  # Pillow's own readers: of one frame, they have done their work
            vars(copied)[name] = copy.deepcopy(value)
    copied.im = image.im.copy()
    return copied
