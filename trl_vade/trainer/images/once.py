"""The images of one trainer's batches: which are processed, kept and encoded once; and a stand-in for the processor.

TRL 1.16 calls the processor with the rows of all completions, for the prompts and again for the pixels. The real one
runs whole, since some count image tokens from the shape of `pixel_values`.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from accelerate.logging import get_logger
from transformers import BatchFeature

from trl_vade.selection.on_time import OnTimeSelection

from ..config_checks import order_is_free
from ..presets import is_adaptive
from ..seams import lacking, own_views
from .store import PixelStore, distinct, has_dropout, kept_once, pixels_in_place, repeated

logger = get_logger(__name__)


def image_parts(prompts: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts with an image of these prompts' messages."""
    for prompt in prompts:
        for message in prompt if isinstance(prompt, list) else []:
            if isinstance(message["content"], list):
                yield from (part for part in message["content"] if part["type"] == "image" and "image" in part)


def processing_once(real: Any, known: dict[int, Any], store: PixelStore) -> Any:
    """Return a processor like `real` that processes each distinct row once, with numbers in place of pixels.

    Rows with images that are not `known`, by their identities, go to `real`. `store` takes the pixels of each call.
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
    copied, kind = copy.copy(one), type(one)
    copied.__class__ = type(kind.__name__, (kind,), methods)
    return copied


class ImagesOnce:
    """The images of one trainer's training batches. Without a trainer, they go TRL's way, as those of evaluations do.

    Attributes:
        on: whether each image is processed and kept once.
        tower_once: whether each image of a pass is encoded once: not with `uniform`, which is TRL to the bit, and not
            with dropout in the tower, since each completion then trains on features of its own.
        grouped: whether completions of an image are put side by side within an optimiser step.
        store: the pixels of the generation batch in use.
    """

    on = tower_once = grouped = False

    def __init__(self, trainer: Any = None):
        self.store = PixelStore()
        self._known: dict[int, Any] | None = None  # the images of the batch in preparation, by identity
        if trainer is None:
            return
        self._trainer, args = trainer, trainer.args
        wanted, reason = args.vade_images_once and trainer._is_vlm, self._reason_against_it()
        self.on = wanted and not reason and not lacking("vade_images_once")
        if wanted and reason:
            logger.warning(f"Images are processed and kept once for each completion, as in TRL: {reason}.")
        self.tower_once = self.on and is_adaptive(args) and not has_dropout(trainer.model)
        self.grouped = self.tower_once and order_is_free(args) and not trainer.aux_loss_enabled

    def _reason_against_it(self) -> str:
        trainer = self._trainer
        if trainer.tools or trainer.environment_factories is not None or trainer.rollout_func is not None:
            return "with tools, environments or a rollout_func they are not TRL's alone"
        real = trainer.processing_class.image_processor if trainer._is_vlm else None
        if real is not None and (hasattr(real, "crop_to_patches") or "spatial_shapes" in real.model_input_names):
            return "the processor cuts them into tiles"  # whose numbers TRL asks for again (InternVL, LFM2-VL)
        return own_views(trainer)

    @contextmanager
    def preparing(self, training: bool, selection: OnTimeSelection | None = None) -> Iterator[None]:
        """Process each image of the training batch that the block prepares once; `selection` may make them again."""
        if not (self.on and training):
            yield
            return
        # The store of the last batch goes before the new one comes; nothing reads the last batch any more.
        trainer, real = self._trainer, self._trainer.processing_class
        self.store, self._known = PixelStore(), {}
        trainer.processing_class = processing_once(real, self._known, self.store)
        try:
            yield
        finally:
            trainer.processing_class, self._known = real, None
        if selection is not None and not selection.loader.decoder.has_transform:
            self.store.of_rows = list(dict.fromkeys(selection.loader.numbers))

    def note(self, prompts: list[Any]) -> None:
        """Take the images in the prompts of the batch in preparation for those to process once."""
        if self._known is not None:
            self._known |= {id(part["image"]): part["image"] for part in image_parts(prompts)}

    def in_passes(self, model: Any) -> Any:
        """Return a block in which `model` takes the pixels of the training batch."""
        if not self.on:
            return nullcontext()
        return pixels_in_place(model, self.store, once=self.tower_once, move=self._trainer._prepare_input)
