"""Rows of a training set: tickets in their place, their lists of images, their identity, and numbers worked out of
every row, which are kept for the next start."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, Features, Value
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray

Rows = list[dict[str, Any]]

THREADS = 8
"""That read or hash the images of one process: reading waits for the disk, hashing lets go of the GIL."""
BATCH_SIZE = 128
"""Rows at a time. Their images are in memory together where the data set was shuffled or filtered (Arrow copies)."""
ROWS_OF_A_TASK = 16
"""Of a thread, of the rows of a batch."""
KEYS_VERSION = 1
"""Of the numbers that `sample_keys` makes of a row's content; part of the name of their cache file."""


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
    prompt and its images (the bytes of their files, not decoded; an `id` column spares reading them). The latter is
    kept by `row_values`. Rows that equal an earlier one in this are copies; they are told apart by their order.
    """
    keys = _hash_ids(dataset) if "id" in dataset.column_names else np.empty(0, dtype=np.int64)
    if np.unique(keys).size < len(dataset):
        keys = _hash_contents(dataset)
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


def row_values(
    dataset: Dataset, compute: Callable[[Any, list[int]], NDArray[np.int64]], *, depends_on: Any, what: str
) -> NDArray[np.int64]:
    """Return (N,) one whole number a row, from `datasets`' cache where an earlier start has left them.

    The cache file lies beside the data set's own files (`Dataset.cache_files`) and is found by a digest of those
    files, of `Dataset._fingerprint` and of `depends_on`. There is none for rows that live in memory, and none is
    written to a folder that is read-only; then every start computes. Processes that compute at the same time write
    the same file, each as a whole (it is moved into its place).

    Args:
        dataset: N rows, in the format that `compute` takes.
        compute: (a batch of rows, their numbers) to their values. It runs in this process, since forking one that
            has threads (of torch, tokenizers, CUDA) may hang; it may have threads of its own.
        depends_on: what else the values follow from; something that `json` can write.
        what: the title of the progress bar.
    """
    if not len(dataset):
        return np.empty(0, dtype=np.int64)
    files = [file["filename"] for file in dataset.cache_files]
    state = [dataset._fingerprint, *map(_file_state, files), depends_on]
    values = dataset.map(
        lambda batch, rows: {"value": compute(batch, rows)},
        batched=True,
        batch_size=BATCH_SIZE,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features({"value": Value("int64")}),
        keep_in_memory=not files or not os.access(os.path.dirname(files[0]), os.W_OK),
        new_fingerprint=hashlib.blake2b(json.dumps(state).encode(), digest_size=16).hexdigest(),
        desc=what,
    )
    return np.array(values.with_format("arrow")[:]["value"].to_numpy())  # a copy that may be written into


def image_files(dataset: Dataset, columns: list[str]) -> list[tuple[Any, ...]]:
    """Name, size and time (ns) of the files that hold images of these columns, in order; of a missing one its name."""
    table = dataset.data.select(columns)
    if next((file for column in table.columns for file in _named_files(column)), None) is None:
        return []  # the table holds all images itself, and Arrow would copy them for what comes next
    batches = dataset.select_columns(columns).with_format("arrow").iter(batch_size=1000)
    names = sorted({file for batch in batches for column in batch.columns for file in _named_files(column)})
    parts = [names[i : i + 500] for i in range(0, len(names), 500)]
    with ThreadPoolExecutor(THREADS) as pool:  # for disks behind a network
        return [state for states in pool.map(lambda part: list(map(_file_state, part)), parts) for state in states]


def with_buffers(scalar: pa.Scalar) -> Any:
    """`scalar.as_py()`, but what a file of an image holds is left where it is, mostly in a file that Arrow has mapped.

    So nothing of it is read before it is used, and then by the thread that uses it.
    """
    kind = scalar.type
    if not scalar.is_valid or not pa.types.is_nested(kind) or pa.types.is_map(kind):
        return scalar.as_py()
    if not pa.types.is_struct(kind):
        return [with_buffers(part) for part in scalar.values]
    if {field.name for field in kind} == {"bytes", "path"} and pa.types.is_binary(kind.field("bytes").type):
        return {"bytes": scalar["bytes"].as_buffer(), "path": scalar["path"].as_py()}
    return {name: with_buffers(part) for name, part in scalar.items()}


def _named_files(array: pa.Array | pa.ChunkedArray) -> Iterator[str]:
    """The names of the image files that `array` does not hold itself."""
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from _named_files(chunk)
    elif pa.types.is_struct(array.type):
        fields = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        if fields.keys() == {"bytes", "path"}:
            yield from fields["path"].filter(fields["bytes"].is_null()).drop_null().to_pylist()
        else:
            for field in fields.values():
                yield from _named_files(field)
    elif pa.types.is_nested(array.type) and hasattr(array, "flatten"):
        yield from _named_files(array.flatten())


def _file_state(name: str) -> tuple[Any, ...]:
    try:
        state = os.stat(name)
    except (OSError, ValueError):
        return (name,)
    return (name, state.st_size, state.st_mtime_ns)


def _hash_ids(dataset: Dataset) -> NDArray[np.int64]:
    batches = dataset.select_columns(["id"]).with_format("arrow").iter(batch_size=BATCH_SIZE)
    return np.fromiter((_hash(row) for batch in batches for row in batch.to_pylist()), np.int64, len(dataset))


def _hash_contents(dataset: Dataset) -> NDArray[np.int64]:
    columns = [name for name in ("prompt", "image", "images") if name in dataset.column_names]
    if not columns:  # an environment writes the prompts: to the data set all rows are the same
        return np.full(len(dataset), _hash({}), dtype=np.int64)
    state = {"keys": KEYS_VERSION, "columns": columns, "files": image_files(dataset, columns)}
    with ThreadPoolExecutor(THREADS) as pool:

        def compute(batch: pa.Table, rows: list[int]) -> NDArray[np.int64]:
            parts = [batch.slice(i, ROWS_OF_A_TASK) for i in range(0, len(rows), ROWS_OF_A_TASK)]
            return np.concatenate(list(pool.map(_hash_table, parts)))

        rows = dataset.select_columns(columns).with_format("arrow")
        return row_values(rows, compute, depends_on=state, what="Hashing the rows")


def _hash_table(table: pa.Table) -> NDArray[np.int64]:
    columns = [[with_buffers(scalar) for scalar in column] for column in table.columns]
    rows = (dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True))
    return np.fromiter(map(_hash, rows), np.int64, table.num_rows)


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


def why_not_loaded(error: Exception) -> str:
    """What `datasets` says of rows that it cannot load, in one line.

    datasets 5.2 says "An error occurred while generating the dataset", and its cause what happened.
    """
    reason = (isinstance(error, DatasetGenerationError) and error.__cause__) or error
    return " ".join(str(reason).split())
