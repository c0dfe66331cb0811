"""Copies of decoded rows, so that each completion owns its values, as TRL's loader decodes a row for each."""

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


def own_values(row: dict[str, Any], *, pictures: bool = True) -> dict[str, Any]:
    """Return a copy of `row` that shares no mutable value with it, or with `pictures=False` none but its pictures.

    A value that may hold a file or a pointer is a `TypeError`: a video decoder, an animated image, an object from a
    transform. Load the row again instead.
    """
    memo: dict[int, Any] = {}
    _copy_leaves(row, memo, pictures)
    return copy.deepcopy(row, memo)


def own_rows(rows: list[dict[str, Any]], prompts: list[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return copies of rows and their prompts, which may hold the same objects. What cannot be copied stays."""
    pairs = []
    for row, prompt in zip(rows, prompts, strict=True):
        pair = {"row": row, "prompt": prompt}
        with suppress(TypeError):
            pair = own_values(pair)
        pairs.append(pair)
    return [pair["row"] for pair in pairs], [pair["prompt"] for pair in pairs]


def _copy_leaves(value: Any, memo: dict[int, Any], pictures: bool) -> None:
    """Put into the `memo` for a `deepcopy` of `value` what the copy has in place of images and tensors."""
    if type(value) is list and {*map(type, value)} <= _PLAIN:
        memo[id(value)] = value.copy()  # `deepcopy` takes milliseconds for long lists (embeddings, token ids)
    elif type(value) in (dict, list, tuple, set):
        for part in value.values() if type(value) is dict else value:
            _copy_leaves(part, memo, pictures)
    elif type(value) is torch.Tensor:
        memo[id(value)] = value.clone()  # a `deepcopy` of a view would copy its base, the whole batch
    elif isinstance(value, PIL.Image.Image):
        if getattr(value, "is_animated", False):
            raise TypeError("An animated image reads its frames from a file, which copies would share.")
        memo[id(value)] = value.copy() if pictures else value
    elif not (isinstance(value, _IMMUTABLE) or (type(value) is np.ndarray and not value.dtype.hasobject)):
        raise TypeError(f"A value of type {type(value).__qualname__} cannot be copied.")
