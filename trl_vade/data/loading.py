"""The rows of a generation batch, as TRL wants them on this process."""

from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather
from datasets import Dataset
from numpy.typing import NDArray
from trl.data_utils import is_conversational, prepare_multimodal_messages
from trl.distributed import DistributedBackend

from trl_vade.errors import ConfigurationError

from .decoding import RowDecoder, Rows
from .own_values import own_values_or_same
from .workers import Workers


def with_image_lists(rows: Rows) -> Rows:
    """Give every row the list of images that TRL asks for, where some row of the batch has none.

    TRL 1.16 takes a batch for text only when each row's `images` is an empty list; with `None` (a row without an image
    in an `image` or `images` column) it hands `[None, ...]` to the processor, which fails. Choosing rows makes batches
    without any image on one process likelier than shuffling does.
    """
    if "images" in rows[0]:
        return [row if row["images"] is not None else {**row, "images": []} for row in rows]
    if "image" in rows[0] and any(row["image"] is None for row in rows):
        return [{**row, "images": [] if row["image"] is None else [row["image"]]} for row in rows]
    return rows


class RowLoader:
    """
    Loads this process's share of a generation batch's rows, and begins with that of the next one.

    Args:
        dataset: N training rows.
        num_generations: G, completions of each row.
        accelerator: of the trainer.
        workers: processes that load rows; see `RowDecoder`.

    Attributes:
        decoder: the rows, with their images decoded.
        images_on_all_processes: whether every process had an image in the batch loaded last.
        keeps: whether `load_again` may come; to be set before the first batch.
        made: for each completion of the batch loaded last, its row as a transform has made it; None without one.
    """

    def __init__(
        self, dataset: Dataset, *, num_generations: int, accelerator: Accelerator, workers: Workers | None = None
    ):
        self.decoder = RowDecoder(dataset, workers)
        self.num_generations = num_generations
        self.accelerator = accelerator
        self.images_on_all_processes = True
        self.keeps = False
        self.made: list[dict[str, Any]] | None = None

    def load(self, sample_index: NDArray[np.int64], draw: int = 0) -> Rows:
        """This process's slice of the K*G completions' rows, in TRL's order; each distinct row is decoded once.

        As from TRL's loader, the items of a group share no values: see `own_values`.

        Args:
            sample_index: (K,) the rows.
            draw: the number of the draw; see `RowWorkers`.
        """
        numbers = self._share(sample_index)
        rows = self.decoder.load(numbers, draw)
        if self.keeps and self.decoder.has_transform:
            one = dict(zip(numbers, rows, strict=True))
            copies = {number: own_values_or_same(row) for number, row in one.items()}
            # A row that cannot be copied was loaded anew for each completion, and may differ each time.
            pairs = zip(numbers, rows, strict=True)
            self.made = [row if copies[number] is one[number] else copies[number] for number, row in pairs]
        return self._as_one_modality(with_image_lists(rows))

    def load_again(self, sample_index: NDArray[np.int64], made: list[dict[str, Any] | None]) -> Rows:
        """As `load`, of rows that were loaded before; what a transform has made is taken from `made`.

        A transform may draw at random, and a completion is trained on with the prompt that it answers.

        Args:
            sample_index: (K,) the rows.
            made: an entry of the `made` of then for each completion of this process's slice.
        """
        if not self.decoder.has_transform:
            return self.load(sample_index)
        return self._as_one_modality(with_image_lists([own_values_or_same(row) for row in made if row is not None]))

    def prefetch(self, sample_index: NDArray[np.int64], draw: int = 0) -> None:
        """Begin to decode what `load` would return of this process's slice, in the background; see `RowDecoder`."""
        self.decoder.prefetch(self._share(sample_index), draw)

    def _share(self, sample_index: NDArray[np.int64]) -> list[int]:
        """The row of each completion in this process's slice of K groups, K*G / processes numbers."""
        share = len(sample_index) * self.num_generations // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        return sample_index[np.arange(first, first + share) // self.num_generations].tolist()

    def _as_one_modality(self, rows: Rows) -> Rows:
        """Where some processes have images in this batch and others none, write text prompts as the others do.

        TRL 1.16 does not expect that in its completions table: it would gather images on some processes only and wait
        for ever (so `images_on_all_processes` tells the trainer to leave them out), and mix prompts whose content is a
        string with prompts whose content is a list of parts, which Arrow refuses.
        """
        has_images = any(row.get("images") or row.get("image") is not None for row in rows)
        self.images_on_all_processes = has_images
        if self.accelerator.num_processes == 1 or not {"image", "images"} & rows[0].keys():
            return rows
        all_have = all(row.get("images") or row.get("image") is not None for row in rows)
        answers, complete = gather(torch.tensor([[has_images, all_have]], device=self.accelerator.device)).T
        self.images_on_all_processes = bool(answers.all())
        self._refuse_mixed_rows_where_weights_are_sharded(answers, complete)
        if has_images or not answers.any() or not is_conversational(rows[0]):
            return rows
        return [{**row, "prompt": prepare_multimodal_messages(row["prompt"])} for row in rows]

    def _refuse_mixed_rows_where_weights_are_sharded(self, answers: torch.Tensor, complete: torch.Tensor) -> None:
        """A process without images skips the vision tower, whose weights the others are waiting to gather.

        Over gloo both abort with a size mismatch; over NCCL they would wait for each other. One process's rows may be
        mixed too, since TRL deals them out to micro-batches.
        """
        backend = DistributedBackend(self.accelerator)
        if (backend.is_fsdp or backend.is_zero3) and answers.any() and not complete.all():
            raise ConfigurationError(
                "This generation batch has rows with images and rows without, and the weights are sharded (FSDP or "
                "DeepSpeed ZeRO-3): a process without images would not gather the vision tower's weights that the "
                "others wait for. Train on rows that all have images, or all have none, or without sharding."
            )
