"""Equal prompts side by side, one for each completion, as TRL passes them around."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL.Image import Image


def equal_neighbours(values: list[Any]) -> list[list[Any]]:
    """Split `values` into runs of equal neighbours."""
    found: list[list[Any]] = []
    for value in values:
        if found and same(found[-1][0], value):
            found[-1].append(value)
        else:
            found.append([value])
    return found


def tokenize_once(prompts: list[Any], tokenize: Callable[[list[Any]], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Tokenise each run of equal prompts once. TRL 1.16 processes every image once for each completion.

    Arguments and result are those of TRL's `_tokenize_prompts`, which is `tokenize`. Only for an engine that encodes
    images itself: the dictionary of the processor's tensors for the model is empty.
    """
    equal = equal_neighbours(prompts)
    prompt_ids, images, _ = tokenize([run[0] for run in equal])
    counts = [len(run) for run in equal]
    return _repeat(prompt_ids, counts), images and _repeat(images, counts), {}


def _repeat(values: list[Any], counts: list[int]) -> list[Any]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def same(a: Any, b: Any) -> bool:
    """Return whether two prompts, or parts of them, are equal. An object of an unknown type equals only itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return _same_pixels(a, b) if isinstance(a, Image) else isinstance(a, str | int | float) and a == b


def _same_pixels(a: Image, b: Image) -> bool:
    """Return `a == b`, compared in Pillow's memory where possible. Pillow's `==` copies both pictures."""
    if (a.mode, a.size, a.info, a.getpalette()) != (b.mode, b.size, b.info, b.getpalette()):
        return False
    with suppress(ValueError, TypeError):  # memory in several parts, or a mode or Pillow (before 11.3) without it
        if pa.array(a).equals(pa.array(b)):  # a difference may lie in padding bytes
            return True
    return a == b
