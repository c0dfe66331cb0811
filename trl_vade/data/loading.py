"""The rows of a generation batch in the form that TRL expects on this process."""

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


def with_image_lists(rows: Rows) -> Rows:
    """Return the rows with lists of images, empty for rows without images.

    TRL 1.16 recognises a text-only batch by empty `images` lists. With `None` in an `image` or `images` column it
    passes `[None, ...]` to the processor, which fails. Selection makes batches without images on one process likelier.
    """
    if "images" in rows[0]:
        return [row if row["images"] is not None else {**row, "images": []} for row in rows]
    if "image" in rows[0] and any(row["image"] is None for row in rows):
        return [{**row, "images": [] if row["image"] is None else [row["image"]]} for row in rows]
    return rows


class RowLoader:
    """A loader of this process's share of a generation batch, which can also prefetch the next share."""

    def __init__(self, dataset: Dataset, *, num_generations: int, accelerator: Accelerator):
        self.decoder = RowDecoder(dataset)
        self.num_generations = num_generations
        self.accelerator = accelerator
        self.images_on_all_processes = True  # whether every process had an image in the last batch
        self.numbers: list[int] = []  # the row of each completion of the last batch
        self.keeps = False  # whether to keep `made` for `load_again`; to be set before the first batch
        # The row of each completion of the last batch after the transform, or None without a transform.
        self.made: list[dict[str, Any]] | None = None

    def load(self, sample_index: NDArray[np.int64]) -> Rows:
        """Load this process's slice of the rows of K*G completions, in TRL's order; `sample_index`: (K,) the rows.

        Each distinct row is decoded once. As with TRL's data loader, the items of a group share no values; see
        `own_values`.
        """
        self.numbers = numbers = self._share(sample_index)
        rows = self.decoder.load(numbers)
        if self.keeps and self.decoder.has_transform:
            one = dict(zip(numbers, rows, strict=True))
            copies = {number: own_values_or_same(row) for number, row in one.items()}
            # A row that cannot be copied was loaded again for each completion, and may differ each time.
            pairs = zip(numbers, rows, strict=True)
            self.made = [row if copies[number] is one[number] else copies[number] for number, row in pairs]
        return self._as_one_modality(with_image_lists(rows))

    def load_again(self, sample_index: NDArray[np.int64], made: list[dict[str, Any] | None]) -> Rows:
        """Load rows again for a resume, with the saved results of a transform.

        A transform may be random, and a completion must be trained on with its own prompt.
        """
        if not self.decoder.has_transform:
            return self.load(sample_index)
        self.numbers = self._share(sample_index)
        return self._as_one_modality(with_image_lists([own_values_or_same(row) for row in made if row is not None]))

    def prefetch(self, sample_index: NDArray[np.int64]) -> None:
        """Start decoding this process's slice in the background; the arguments are those of `load`."""
        self.decoder.prefetch(self._share(sample_index))

    def _share(self, sample_index: NDArray[np.int64]) -> list[int]:
        """Return the row of each completion in this process's slice, K*G / processes numbers."""
        share = len(sample_index) * self.num_generations // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        return sample_index[np.arange(first, first + share) // self.num_generations].tolist()

    def _as_one_modality(self, rows: Rows) -> Rows:
        """Convert text prompts to lists of parts if only other processes have images in this batch.

        TRL 1.16 does not expect such a batch in its completions table. It would gather images on some processes only
        and wait forever, so `images_on_all_processes` tells the trainer to leave images out. It would also mix prompts
        as strings with prompts as lists of parts, which Arrow refuses.
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
        """Raise `ConfigurationError` if only some rows have images under FSDP or DeepSpeed ZeRO-3.

        A process without images skips the vision tower, and the others wait for its share of the weights. gloo aborts
        with a size mismatch; NCCL would hang. Mixed rows on one process fail, too, since TRL splits them into
        micro-batches.
        """
        backend = DistributedBackend(self.accelerator)
        if (backend.is_fsdp or backend.is_zero3) and answers.any() and not complete.all():
            raise ConfigurationError(
                "This generation batch has rows with images and rows without, but the weights are sharded (FSDP or "
                "DeepSpeed ZeRO-3). A process without images would not gather the weights of the vision tower, and "
                "the others would wait for it. Use rows that all have images, rows without images, or no sharding."
            )
