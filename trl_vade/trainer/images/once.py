"""The images of one trainer's batches: which are processed, kept and encoded once."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from trl_vade.selection.on_time import OnTimeSelection

from ..method_owners import own_views
from ..presets import is_adaptive
from ..seams import lacking
from .order import order_is_free
from .processor import Pictures, cuts_tiles, processed_once
from .store import PixelStore
from .tower import has_dropout, pixels_in_place


class ImagesOnce:
    """The images of one trainer's batches. Without a trainer, they go TRL's way.

    Attributes:
        on: whether each image is processed and kept once.
        tower_once: whether each image of a pass is encoded once: not with `uniform`, which is TRL to the bit, and not
            with dropout in the tower, since each completion then trains on features of its own.
        grouped: whether completions of an image are put side by side within an optimiser step.
        stores: the pixels of the generation batch in use, by whether the trainer trains. An evaluation between the
            steps of a generation batch has its own.
    """

    on = tower_once = grouped = False

    def __init__(self, trainer: Any = None):
        if trainer is None:
            return
        self._trainer, args = trainer, trainer.args
        self.on = args.vade_images_once and not lacking("vade_images_once") and self._is_possible()
        self.tower_once = self.on and is_adaptive(args) and not has_dropout(trainer.model)
        self.grouped = self.tower_once and order_is_free(args) and not trainer.aux_loss_enabled
        self.stores = {True: self._store(), False: self._store()}
        self._pictures = Pictures()

    def _is_possible(self) -> bool:
        """Return whether the batches have images that only TRL and this package use."""
        trainer = self._trainer
        if not trainer._is_vlm or cuts_tiles(trainer.processing_class.image_processor):
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
    def preparing(self, training: bool, selection: OnTimeSelection | None = None) -> Iterator[None]:
        """Process the images of the batch that the block prepares once each, into a new store.

        Args:
            training: whether it is a training batch or one of an evaluation.
            selection: of the rows of a training batch; without a transform, they can be processed again.
        """
        if not self.on:
            yield
            return
        # The store of the last batch goes before the new one comes; nothing reads the last batch any more.
        store = self.stores[training] = self._store()
        self._pictures = Pictures()
        with processed_once(self._trainer, self._pictures, store):
            yield
        if training and selection is not None and not selection.loader.decoder.has_transform:
            store.of_rows = list(dict.fromkeys(selection.loader.numbers))

    def note(self, prompts: list[Any]) -> None:
        """Take the images in the prompts of the batch in preparation for those to process once."""
        if self.on:
            self._pictures.note(prompts)

    def in_passes(self, model: Any) -> Any:
        """Return a block in which `model` takes the pixels of the present batch."""
        if not self.on:
            return nullcontext()
        store = self.stores[self._trainer.model.training]
        return pixels_in_place(model, store, once=self.tower_once, move=self.move)
