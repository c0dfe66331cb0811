"""Rows of a training set: tickets in their place, their lists of images, their identity."""

import hashlib
import json
from typing import Any

import torch
from datasets import Dataset

Rows = list[dict[str, Any]]


class TicketDataset(torch.utils.data.Dataset):
    """Stands in for `num_rows` training rows in the loader: item i is the number i, which nobody reads.

    Look-ahead, loader workers, skipped batches on resume and epochs then cost nothing and choose nothing, while TRL
    and the Trainer keep their own arithmetic of lengths and steps.
    """

    def __init__(self, num_rows: int):
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> int:
        return index


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


def dataset_fingerprint(dataset: Dataset) -> str:
    """sha256 over the rows' identities in order: the `id` column where there is one, else the prompts.

    Not `datasets`' own fingerprint: that one names the steps by which a table was made, and changes when the same
    rows are loaded in another way.
    """
    column = "id" if "id" in dataset.column_names else "prompt"
    digest = hashlib.sha256(f"{len(dataset)} rows by {column}".encode())
    for batch in dataset.select_columns([column]).with_format("arrow").iter(batch_size=1000):
        digest.update(json.dumps(batch.column(column).to_pylist(), default=repr).encode())
    return digest.hexdigest()
