"""The processed pictures of a generation batch, which a resume makes again from the rows.

8 rows x 8 completions of 1-megapixel pictures take 1.5 GiB in the batch, because each completion has a copy. They
follow from the rows and the processor, so a checkpoint holds the number of each row and a digest of its pictures.
"""

import hashlib
from typing import Any

import torch
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import split_pixel_values_by_grid

from trl_vade.data.loading import with_image_lists

from ..batch_rows import Batch

ROW = "vade_row"
"""Entry of a batch: (B,) the number of each row in the training set."""

PICTURES = ("pixel_values", "pixel_attention_mask")
"""The large entries that `split_pixel_values_by_grid` of TRL splits by row, where a model has them in that form."""

Pictures = dict[int, Batch]
"""The entries `PICTURES` of a row by its number, empty for a row without pictures."""


def set_pictures_aside(micro_batches: list[Batch]) -> tuple[list[Batch], dict[int, str]]:
    """Return the micro-batches without their pictures, and the SHA-256 of the pictures of each row.

    All stays as it is, without a digest, if rows are unknown or two completions of a row have different pictures, such
    as those of tools.
    """
    first, split = Pictures(), [_by_completion(each) for each in micro_batches]
    for micro_batch, parts in zip(micro_batches, split, strict=True):
        for place, row in enumerate(micro_batch.get(ROW, [])):
            pictures = {name: values[place] for name, values in parts.items() if len(values[place])}
            known = first.setdefault(int(row), pictures)
            if known.keys() != pictures.keys() or not all(known[name].equal(pictures[name]) for name in known):
                return micro_batches, {}
    digests = {row: _digest(pictures) for row, pictures in first.items() if pictures}
    pairs = zip(micro_batches, split, strict=True)
    return [each | {name: each[name][:0] for name in parts if digests} for each, parts in pairs], digests


def with_pictures(micro_batches: list[Batch], pictures: Pictures, digests: dict[int, str]) -> list[Batch]:
    """Return the micro-batches of `set_pictures_aside` with the pictures of their rows.

    Raises:
        ValueError: the pictures of a row do not have their digest.
    """
    # An entry that TRL does not split is in the file.
    types = {name: each[name].dtype for each in micro_batches for name in PICTURES if not len(each.get(name, " "))}
    for row, digest in digests.items():
        pictures[row] = {name: value.to(types[name]) for name, value in pictures[row].items() if name in types}
        if _digest(pictures[row]) != digest:
            raise ValueError(f"the pictures of row {row} are others now, or the processor is another")
    filled = []
    for each in micro_batches:
        rows = [row for row in each[ROW].tolist() if row in digests]
        parts = {name: [each[name], *(pictures[row][name] for row in rows)] for name in types if name in each}
        filled.append(each | {name: torch.cat(values) for name, values in parts.items()})
    return filled


def load_pictures(trainer: Any, rows: list[int]) -> Pictures:
    """Return the pictures of rows of the training set, read and processed as TRL 1.16 does.

    `_tokenize_prompts` processes them with the prompt, as the pass over a whole batch does.
    """
    pictures = {}
    for number, row in zip(rows, with_image_lists(trainer.selection.loader.decoder.load(rows)), strict=True):
        images = row["images"] if "images" in row else [row["image"]] if "image" in row else []
        prompt = prepare_multimodal_messages(row["prompt"], images=images) if images else row["prompt"]
        _, _, fields = trainer._tokenize_prompts([prompt])
        pictures[number] = {name: torch.as_tensor(fields[name]) for name in PICTURES if name in fields}
    return pictures


def _by_completion(micro_batch: Batch) -> dict[str, list[torch.Tensor]]:
    split = split_pixel_values_by_grid(micro_batch)
    return {name: split[name] for name in PICTURES if isinstance(split.get(name), list)}


def _digest(pictures: Batch) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(pictures.items()):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
