"""A stand-in for the processor, which sees each distinct row of a generation batch once.

TRL 1.16 calls the processor with the rows of all completions, to tokenise the prompts and again for the pixels. The
real processor runs whole, since some processors count image tokens from the shape of `pixel_values`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.logging import get_logger
from transformers import BatchFeature

from .store import PixelStore, Rows, distinct, expanded

logger = get_logger(__name__)


class Pictures:
    """The images of a generation batch, by identity. `Rows` of these are processed once; others are left to TRL.

    The images are kept here, so that no other object gets the identity of one of them.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def note(self, prompts: list[Any]) -> None:
        """Take the images in these prompts, lists of messages, for those of the batch."""
        self._known |= {id(part["image"]): part["image"] for part in image_parts(prompts)}

    def keys(self, images: list[Any] | None) -> list[int] | None:
        """Return the identities of a row's images, or None if one is not of the batch."""
        found = [id(image) for image in images or []]
        return found if self._known.keys() >= set(found) else None


def image_parts(prompts: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts with an image of these prompts' messages."""
    for prompt in prompts:
        for message in prompt if isinstance(prompt, list) else []:
            if isinstance(message["content"], list):
                yield from (part for part in message["content"] if part["type"] == "image" and "image" in part)


def has_grid(image_processor: Any) -> bool:
    """Return whether images become patches with a grid, which are the same alone as among other images."""
    return "image_grid_thw" in image_processor.model_input_names


def cuts_tiles(image_processor: Any) -> bool:
    """Return whether images become numbers of tiles that TRL asks for again (InternVL, LFM2-VL)."""
    return hasattr(image_processor, "crop_to_patches") or "spatial_shapes" in image_processor.model_input_names


def settings_of(named: dict[str, Any]) -> str:
    """Return the arguments of an image processor as a key. TRL's calls differ in `return_tensors` alone."""
    return repr(sorted((named | {"return_tensors": "pt"}).items()))


class Processed:
    """What an image processor made of the images of a generation batch, in place of its `preprocess`.

    A call with the same images and settings gets the same tensors. Of images with a grid, an image that several rows
    have is processed once.
    """

    def __init__(self, image_processor: Any, pictures: Pictures):
        self._preprocess, self._pictures = image_processor.preprocess, pictures
        self._each = has_grid(image_processor)
        self._made: dict[Any, BatchFeature] = {}

    def __call__(self, images: Any, *positional: Any, **named: Any) -> BatchFeature:
        """Return what `preprocess` returns, of the real call or of an earlier one."""
        flat = list(_flat(images))
        keys = self._pictures.keys(flat)
        if keys is None or positional:
            return self._preprocess(images, *positional, **named)
        key = (*keys, settings_of(named))
        if key not in self._made:
            named["return_tensors"] = "pt"
            make = self._process_each if self._each else self._preprocess
            self._made[key] = make(images, **named)
        return BatchFeature(dict(self._made[key]))

    def _process_each(self, images: Any, **named: Any) -> BatchFeature:
        """Process the distinct images, and repeat the results for all."""
        flat = list(_flat(images))
        at, inverse = distinct([*map(id, flat)])
        if len(at) == len(flat):
            return self._preprocess(images, **named)
        made = self._preprocess([flat[place] for place in at], **named)
        grids = made["image_grid_thw"]
        parts = made["pixel_values"].split(grids.prod(-1).tolist())
        pixels = torch.cat([parts[place] for place in inverse])
        return BatchFeature({"pixel_values": pixels, "image_grid_thw": grids[inverse]})


def _flat(images: Any) -> Iterator[Any]:
    if isinstance(images, list | tuple):
        for each in images:
            yield from _flat(each)
    else:
        yield images


@contextmanager
def processed_once(trainer: Any, pictures: Pictures, store: PixelStore) -> Iterator[None]:
    """Set `trainer.processing_class` to the stand-in, and let the image processor keep its results, in the block."""
    real = trainer.processing_class
    image_processor, kind = real.image_processor, type(real.image_processor)
    processed = Processed(image_processor, pictures)
    # Not an attribute of the object: `to_dict` would copy it.
    image_processor.__class__ = type(kind.__name__, (kind,), {"preprocess": staticmethod(processed)})
    trainer.processing_class = _stand_in(real, pictures, store)
    try:
        yield
    finally:
        trainer.processing_class = real
        image_processor.__class__ = kind


def _stand_in(real: Any, pictures: Pictures, store: PixelStore) -> Any:
    """Return an object of `real`'s class, with its values, that runs `real` once for each distinct row."""

    class Once(type(real)):  # type: ignore[misc]  # isinstance(..., ProcessorMixin) stays true
        def __call__(self, images: Any = None, text: Any = None, **named: Any) -> Any:
            of_rows = images is not None and isinstance(text, list) and len(images) == len(text)
            keys = [pictures.keys(row) for row in images] if of_rows else [None]
            if None in keys:
                return real(images=images, text=text, **named)
            at, inverse = distinct([*zip(text, map(tuple, keys), strict=True)])
            output = real(images=[images[place] or [] for place in at], text=[text[place] for place in at], **named)
            many = expanded(output, Rows([keys[place] for place in at], inverse), store)
            if many is None:
                logger.warning_once(
                    f"{type(real).__name__} returns {', '.join(output)}, and their layout is unknown. These images "
                    "are processed and kept once for each completion, as in TRL. Set vade_images_once=False to leave "
                    "this message out."
                )
                return real(images=images, text=text, **named)
            return BatchFeature(many)

    stand_in = object.__new__(Once)
    stand_in.__dict__ = real.__dict__
    return stand_in
