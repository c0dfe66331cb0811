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

from .decoding import RowDecoder, Rows, naming_row


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


def has_images(row: dict[str, Any]) -> bool:
    """Return whether a row has an image."""
    return bool(row.get("images")) or row.get("image") is not None


def messages_of(row: dict[str, Any]) -> Any:
    """Return the prompt with its images in its messages, as TRL makes it; `ValueError` if their numbers differ."""
    single = [] if row.get("image") is None else [row["image"]]
    return prepare_multimodal_messages(row["prompt"], images=row.get("images", single))


class RowLoader:
    """A loader of this process's share of a generation batch, which can also prefetch the next share."""

    def __init__(self, dataset: Dataset, *, num_generations: int, accelerator: Accelerator):
        self.decoder = RowDecoder(dataset)
        self.num_generations = num_generations
        self.accelerator = accelerator
        self.images_on_all_processes = True  # whether every process had an image in the last batch
        self.numbers: list[int] = []  # the row of each completion of the last batch
        self.made: Rows | None = None  # the row of each completion of the last batch, if a transform made it

    def load(self, sample_index: NDArray[np.int64]) -> Rows:
        """Load this process's slice of the rows of K*G completions, in TRL's order; `sample_index`: (K,) the rows.

        Each distinct row is decoded once. The items of a group share no values, or only pictures (see `RowDecoder`).
        """
        self.numbers = self._share(sample_index)
        rows = self.decoder.load(self.numbers)
        self.made = rows if self.decoder.has_transform else None
        return self._prepared(rows)

    def load_again(self, sample_index: NDArray[np.int64], made: list[dict[str, Any] | None]) -> Rows:
        """Load rows again; those of a transform, which may be random, are the `made` ones that were answered."""
        if not self.decoder.has_transform:
            return self.load(sample_index)
        self.numbers = self._share(sample_index)
        return self._prepared([row for row in made if row is not None])

    def prefetch(self, sample_index: NDArray[np.int64]) -> None:
        """Start decoding this process's slice in the background; the arguments are those of `load`."""
        self.decoder.prefetch(self._share(sample_index))

    def _share(self, sample_index: NDArray[np.int64]) -> list[int]:
        """Return the row of each completion in this process's slice, K*G / processes numbers."""
        share = len(sample_index) * self.num_generations // self.accelerator.num_processes
        first = self.accelerator.process_index * share
        return sample_index[np.arange(first, first + share) // self.num_generations].tolist()

    def _prepared(self, rows: Rows) -> Rows:
        rows = with_image_lists(rows)
        if any(map(has_images, rows)) and is_conversational(rows[0]):
            naming_row(self.numbers, rows, lambda some: [*map(messages_of, some)])  # as TRL will, which names no row
        return self._as_one_modality(rows)

    def _as_one_modality(self, rows: Rows) -> Rows:
        """Convert text prompts to lists of parts if only other processes have images in this batch.

        TRL 1.16 would gather images on some processes only for its completions table and wait forever, so
        `images_on_all_processes` tells the trainer to leave images out. Arrow refuses both kinds of prompts together.
        """
        self.images_on_all_processes = some = any(map(has_images, rows))
        if self.accelerator.num_processes == 1 or not {"image", "images"} & rows[0].keys():
            return rows
        here = torch.tensor([[some, all(map(has_images, rows))]], device=self.accelerator.device)
        answers, complete = gather(here).T
        self.images_on_all_processes = bool(answers.all())
        # gloo aborts, NCCL would hang. Mixed rows on one process fail, too: TRL splits them into micro-batches.
        backend = DistributedBackend(self.accelerator)
        if (backend.is_fsdp or backend.is_zero3) and answers.any() and not complete.all():
            raise ConfigurationError(
                "This generation batch has rows with images and rows without, but the weights are sharded (FSDP or "
                "DeepSpeed ZeRO-3). A process without images would not gather the weights of the vision tower, and "
                "the others would wait for it. Use rows that all have images, rows without images, or no sharding."
            )
        if some or not answers.any() or not is_conversational(rows[0]):
            return rows
        return [{**row, "prompt": prepare_multimodal_messages(row["prompt"])} for row in rows]
