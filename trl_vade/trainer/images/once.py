"""The images of one trainer's batches: which are processed, kept and encoded once."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from accelerate.logging import get_logger

from trl_vade.selection.on_time import OnTimeSelection

from ..down_sampling import order_is_free
from ..presets import is_adaptive
from ..seams import lacking, own_views
from .processor import cuts_tiles, image_parts, processing_once
from .store import PixelStore
from .tower import has_dropout, pixels_in_place

logger = get_logger(__name__)


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
        """Return who else uses the images of a batch, or an empty text."""
        trainer = self._trainer
        if trainer.tools or trainer.environment_factories is not None or trainer.rollout_func is not None:
            return "with tools, environments or a rollout_func they are not TRL's alone"
        if trainer._is_vlm and cuts_tiles(trainer.processing_class.image_processor):
            return "the processor cuts them into tiles"
        return own_views(trainer)

    @contextmanager
    def preparing(self, training: bool, selection: OnTimeSelection | None = None) -> Iterator[None]:
        """Process the images of the training batch that the block prepares once each, into a new store.

        Args:
            training: whether it is a training batch.
            selection: of its rows; without a transform, they can be processed again.
        """
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
