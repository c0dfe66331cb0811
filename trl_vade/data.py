"""Rows of a training set: tickets in their place, their lists of images, their identity."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

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


def sample_keys(dataset: Dataset) -> tuple[NDArray[np.int64], int]:
    """Return (N,) numbers that stay with their rows when rows come, go or move, and how many rows are copies.

    A number is 64 bits of a hash of the row's `id` where that column holds a different value for each row, else of its
    prompt and its images (the bytes of their files, not decoded; an `id` column spares reading them). Rows that equal
    an earlier one in this are copies; they are told apart by their order.
    """
    keys = _hash_rows(dataset, ["id"]) if "id" in dataset.column_names else np.empty(0, dtype=np.int64)
    if np.unique(keys).size < len(dataset):
        keys = _hash_rows(dataset, [name for name in ("prompt", "image", "images") if name in dataset.column_names])
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    copies = np.setdiff1d(np.arange(len(keys)), first)
    number: Counter[int] = Counter()
    for row in copies:
        number[group[row]] += 1
        keys[row] = _hash({"copy": number[group[row]], "of": int(keys[first[group[row]]])})
    return keys, len(copies)


def dataset_fingerprint(keys: NDArray[np.int64]) -> str:
    """sha256 over the `sample_keys` of a data set, in order.

    Not `datasets`' own fingerprint: that one names the steps by which a table was made, and changes when the same
    rows are loaded in another way.
    """
    return hashlib.sha256(keys.astype("<i8").tobytes()).hexdigest()


def _hash_rows(dataset: Dataset, columns: list[str]) -> NDArray[np.int64]:
    batches = dataset.select_columns(columns).with_format("arrow").iter(batch_size=100)
    return np.fromiter((_hash(row) for batch in batches for row in batch.to_pylist()), np.int64, len(dataset))


def _hash(row: dict[str, Any]) -> int:
    text = json.dumps(_identity(row), default=repr, sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _identity(value: Any) -> Any:
    """`value` as JSON, with a digest in place of each image: the same file in another folder is the same image.

    A field without a value is left out: Arrow gives it to every row of a table in which some other row has a value.
    """
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"}:
            content, path = value["bytes"], value["path"]
            if content is None and path is not None:
                content = Path(path).read_bytes() if Path(path).is_file() else path.encode()
            return hashlib.blake2b(content or b"").hexdigest()
        return {name: _identity(part) for name, part in value.items() if part is not None}
    return [_identity(part) for part in value] if isinstance(value, list) else value
