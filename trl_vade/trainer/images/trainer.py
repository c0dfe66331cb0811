"""`ImagesOnceTrainer`: the seams between TRL's trainer and `images`. Each override calls the parent's method."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from trl import GRPOTrainer

from ..batch_rows import with_pixels_counted
from ..method_owners import own_views
from ..presets import is_adaptive
from ..seams import arguments_of
from .order import order_is_free
from .processor import Pictures, processed_once, share_images
from .store import PixelStore
from .tower import has_dropout, pixels_in_place


class ImagesOnce:
    """The images of one trainer's batches.

    Attributes:
        on: whether each image is processed and kept once.
        tower_once: whether each image of a pass is encoded once: not with `uniform`, which is TRL to the bit, and not
            with dropout in the tower, since each completion then trains on features of its own.
        grouped: whether completions of an image are put side by side within an optimiser step.
        stores: the pixels of the generation batch in use, by whether the trainer trains. An evaluation between the
            steps of a generation batch has its own.
    """

    def __init__(self, trainer: Any):
        self._trainer, args = trainer, trainer.args
        self.on = args.vade_images_once and self._is_possible()
        self.tower_once = self.on and is_adaptive(args) and not has_dropout(trainer.model)
        self.grouped = self.tower_once and order_is_free(args) and not trainer.aux_loss_enabled
        self.stores = {True: self._store(), False: self._store()}
        self._pictures = Pictures()

    def _is_possible(self) -> bool:
        """Return whether the batches have images that only TRL and this package use."""
        trainer = self._trainer
        if not trainer._is_vlm:
            return False
        if trainer.tools or trainer.environment_factories is not None or trainer.rollout_func is not None:
            return False
        return not own_views(trainer)

    def _store(self) -> PixelStore:
        return PixelStore(torch.Tensor.pin_memory) if torch.cuda.is_available() else PixelStore()

    def move(self, value: torch.Tensor) -> torch.Tensor:
        """Bring pixels to the device, and to DeepSpeed's type, as the Trainer does with a batch."""
        if value.is_pinned():
            value = value.to(self._trainer.accelerator.device, non_blocking=True)
        return self._trainer._prepare_input(value)

    def store_bytes(self) -> int:
        """Return the size of the training batch's pixels."""
        return self.stores[True].bytes

    @contextmanager
    def preparing(self, training: bool) -> Iterator[None]:
        """Process the images of the batch that the block prepares once each, into a new store.

        `training` tells whether it is a training batch or one of an evaluation.
        """
        if not self.on:
            yield
            return
        # The store of the last batch goes before the new one comes; nothing reads the last batch any more.
        store = self.stores[training] = self._store()
        self._pictures = Pictures()
        with processed_once(self._trainer, self._pictures, store):
            yield

    def note(self, prompts: list[Any]) -> None:
        """Take the images in the prompts of the batch in preparation for those to process once."""
        self._pictures.note(prompts)

    def in_passes(self, model: Any) -> Any:
        """Return a block in which `model` takes the pixels of the present batch."""
        store = self.stores[self._trainer.model.training]
        if not self.on:
            return nullcontext()
        return pixels_in_place(model, store, once=self.tower_once, move=self.move)


class ImagesOnceTrainer(GRPOTrainer):
    """Base of `VADEGRPOTrainer` for images. Each override calls the parent's method."""

    _images: ImagesOnce | None = None  # None until the trainer is made

    def _generate_and_score_completions(self, inputs):
        """Process each image of the batch once."""
        with self._images.preparing(self.model.training):
            return with_pixels_counted(super()._generate_and_score_completions(inputs))

    def _generate(self, prompts):
        """Give the completions of a row the same image objects, where TRL loaded the row."""
        loaded_here = self.selection is not None and self.model.training
        return super()._generate(share_images(prompts) if self._images.on and not loaded_here else prompts)

    def _tokenize_prompts(self, prompts):
        """Note the images of the batch."""
        self._images.note(prompts)
        return super()._tokenize_prompts(prompts)

    @functools.wraps(GRPOTrainer._generate_single_turn)
    def _generate_single_turn(self, *positional: Any, **named: Any):
        """Generate with the pixels of the store."""
        with self._images.in_passes(self.model):
            return super()._generate_single_turn(*positional, **named)

    @functools.wraps(GRPOTrainer._get_per_token_logps_and_entropies)
    def _get_per_token_logps_and_entropies(self, *positional: Any, **named: Any):
        """Compute with the pixels of the store."""
        model = arguments_of(GRPOTrainer, "_get_per_token_logps_and_entropies", positional, named)["model"]
        with self._images.in_passes(model):
            return super()._get_per_token_logps_and_entropies(*positional, **with_pixels_counted(named))
