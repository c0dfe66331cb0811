"""A stand-in for the processor, which sees each distinct row of a generation batch once.

TRL 1.16 calls the processor with the rows of all completions, to tokenise the prompts and again for the pixels. The
real processor runs whole, since some processors count image tokens from the shape of `pixel_values`.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from accelerate.logging import get_logger
from transformers import BatchFeature

from .store import PixelStore, distinct, kept_once, repeated

logger = get_logger(__name__)


def image_parts(prompts: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts with an image of these prompts' messages."""
    for prompt in prompts:
        for message in prompt if isinstance(prompt, list) else []:
            if isinstance(message["content"], list):
                yield from (part for part in message["content"] if part["type"] == "image" and "image" in part)


def cuts_tiles(image_processor: Any) -> bool:
    """Return whether images become numbers of tiles that TRL asks for again (InternVL, LFM2-VL)."""
    return hasattr(image_processor, "crop_to_patches") or "spatial_shapes" in image_processor.model_input_names


def processing_once(real: Any, known: dict[int, Any], store: PixelStore) -> Any:
    """Return a processor like `real` that processes each distinct row once, with numbers in place of pixels.

    Args:
        real: the processor. It stays as it is.
        known: the images of the generation batch by their identities. Rows with other images go to `real`.
        store: it takes the pixels of each call.
    """
    kind = type(real)

    def process(self: Any, images: Any = None, text: Any = None, **named: Any) -> Any:
        of_rows = isinstance(images, list) and isinstance(text, list) and len(images) == len(text)
        keys = [tuple(map(id, _flat(row))) for row in images] if of_rows else []
        if any(keys) and known.keys() >= {key for row in keys for key in row}:
            at, places = distinct([*zip(text, keys, strict=True)])
            some, texts = [images[place] or [] for place in at], [text[place] for place in at]
            output = kind.__call__(self, images=some, text=texts, **named)
            if found := kept_once(output, [keys[place] for place in at], places, store):
                return BatchFeature(found)
            logger.warning_once("Images are processed and kept once for each completion: the processor is unknown.")
        return real(images=images, text=text, **named)

    stand_in = _alike(real, __call__=process)
    stand_in.image_processor = _alike(real.image_processor, preprocess=_preprocessing_once(real.image_processor))
    return stand_in


def _preprocessing_once(real: Any) -> Callable[..., BatchFeature]:
    """Return a method that makes of the same images the same tensors, as both of TRL's calls have the same rows.

    With a grid, an image's patches are the same alone as among others. So an image of several rows is processed once.
    """
    made: dict[Any, tuple[Any, list[Any]]] = {}

    def preprocess(self: Any, images: Any, **settings: Any) -> BatchFeature:
        flat, settings = [*_flat(images)], settings | {"return_tensors": "pt"}
        keys = [*map(id, flat)]
        if (key := (*keys, repr(settings))) not in made:
            at, places = distinct(keys)
            if len(at) < len(keys) and "image_grid_thw" in real.model_input_names:
                output = repeated(real.preprocess([flat[place] for place in at], **settings), [1] * len(at), places)
            else:
                output = real.preprocess(images, **settings)
            made[key] = output, flat  # kept, so that no other image gets an identity of these
        return BatchFeature(dict(made[key][0]))

    return preprocess


def _flat(images: Any) -> Iterator[Any]:
    if isinstance(images, list | tuple):
        for each in images:
            yield from _flat(each)
    elif images is not None:
        yield images


def _alike(one: Any, **methods: Any) -> Any:
    """Return a copy of an object that has other methods, and else its class."""
    copied, kind = copy.copy(one), type(one)
    copied.__class__ = type(kind.__name__, (kind,), methods)
    return copied
