"""Images processed in the decoding threads, before their generation batch is due.

For image processors with a grid (Qwen-VL), whose result for an image is the same alone as among others. Results are
found again by the image's content: TRL copies the images on the way.
"""

import threading
from typing import Any

from transformers import BatchFeature

from ..generation.repeated_prompts import same
from .processor import has_grid, settings_of

BYTES_A_PIXEL = 3 * 2 * 4
"""Channels, frames and bytes of a number: what the processor makes of a pixel that it does not scale up."""


class Ahead:
    """Results of an image processor for the images of rows that were just decoded.

    Args:
        image_processor: of the trainer.
        limit: bytes of results to hold at most. Images beyond it are processed when they are needed.
    """

    def __init__(self, image_processor: Any, limit: float):
        self._image_processor, self._limit = image_processor, limit if has_grid(image_processor) else 0
        self._made: dict[Any, list[tuple[Any, BatchFeature]]] = {}
        self._reserved, self._lock = 0, threading.Lock()

    def process(self, row: dict[str, Any]) -> None:
        """Process the images of a decoded row. Called in threads; an image that fails, fails again when it is due."""
        images = row["images"] if row.get("images") else [row.get("image")]
        for image in images:
            size = BYTES_A_PIXEL * image.width * image.height if hasattr(image, "width") else self._limit + 1
            with self._lock:
                if self._reserved + size > self._limit:
                    return
                self._reserved += size
            made = self._image_processor(image, return_tensors="pt")
            with self._lock:
                self._reserved += sum(value.nbytes for value in made.values()) - size
                self._made.setdefault((image.mode, image.size), []).append((image, made))

    def find(self, image: Any, settings: str) -> BatchFeature | None:
        """Return the result for an image of this content under these `settings`, or None."""
        if settings != settings_of({}):
            return None
        with self._lock:
            alike = list(self._made.get((getattr(image, "mode", None), getattr(image, "size", None)), ()))
        return next((made for other, made in alike if same(other, image)), None)

    def forget(self) -> None:
        """Drop all results."""
        with self._lock:
            self._made, self._reserved = {}, 0
