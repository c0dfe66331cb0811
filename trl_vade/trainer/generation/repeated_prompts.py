"""Equal prompts side by side, one for each completion, as TRL passes them around."""

from collections.abc import Callable
from itertools import groupby
from typing import Any


def equal_neighbours(values: list[Any]) -> list[list[Any]]:
    """Split `values` into runs of equal neighbours. An image equals only itself: completions share the row's."""
    return [list(run) for _, run in groupby(values, _key)]


def _key(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _key(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    return value if value is None or isinstance(value, str | int | float) else id(value)


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
