"""Which pictures a run gives to its image processor and to its vision tower."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from hashlib import blake2b
from inspect import signature
from typing import Any

import pytest
from transformers.image_utils import make_flat_list_of_images


@dataclass
class SeenPictures:
    """
    What was seen of a run, each picture as a digest of its contents.

    Args:
        processed: the pictures of every run of the image processor, in order.
        passes: of each pass of the vision tower its units, in order. A unit is a picture for Qwen and GLM, else a row
            of `pixel_values`: a tile for InternVL and LFM2-VL, all pictures of a prompt for Idefics3.
    """

    processed: list[bytes] = field(default_factory=list)
    passes: list[list[bytes]] = field(default_factory=list)


@contextmanager
def seen_pictures(trainer: Any) -> Iterator[SeenPictures]:
    """Note all pictures of a trainer while the block runs. It wraps methods of classes, not of instances."""
    seen = SeenPictures()
    processor = type(trainer.processing_class.image_processor)
    tower = [type(part) for part in trainer.model.modules() if hasattr(type(part), "get_image_features")][-1]
    preprocess, features = processor.preprocess, tower.get_image_features

    @wraps(preprocess)
    def noting_pictures(self, images, *positional, **named):
        seen.processed += [_digest(each.size, each.tobytes()) for each in make_flat_list_of_images(images)]
        return preprocess(self, images, *positional, **named)

    @wraps(features)
    def noting_units(*positional, **named):
        given = signature(features).bind(*positional, **named).arguments
        units = given["pixel_values"]
        if "image_grid_thw" in given:
            units = units.split(given["image_grid_thw"].prod(-1).tolist())
        seen.passes.append([_digest(unit.shape, unit.numpy().tobytes()) for unit in units])
        return features(*positional, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "preprocess", noting_pictures)
        patch.setattr(tower, "get_image_features", noting_units)
        yield seen


def _digest(shape: Any, contents: bytes) -> bytes:
    return blake2b(repr(tuple(shape)).encode() + contents, digest_size=8).digest()
