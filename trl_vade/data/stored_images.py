"""Images as Arrow stores them: `{"bytes", "path"}`, with the bytes in the table or in a named file."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from datasets import Dataset

from .cached_values import file_state

THREADS = 8
"""The threads that read or hash images in one process. Reading waits for the disk; hashing releases the GIL."""


def may_hold_images(kind: pa.DataType) -> bool:
    """Return whether values of this type can contain images. An extension type can contain anything."""
    if isinstance(kind, pa.BaseExtensionType):
        return True
    names = {field.name for field in kind} if pa.types.is_struct(kind) else set()
    return names == {"bytes", "path"} or any(may_hold_images(kind.field(i).type) for i in range(kind.num_fields))


def image_files(dataset: Dataset, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return `cached_values.file_state` of all image files that these columns name, sorted by name."""
    table = dataset.data.select(columns)
    if not any(may_hold_images(kind) for kind in table.schema.types):
        return []
    if next((file for column in table.columns for file in _named_files(column)), None) is None:
        return []  # the table holds all images, and Arrow would copy them below
    batches = dataset.select_columns(columns).with_format("arrow").iter(batch_size=1000)
    names = sorted({file for batch in batches for column in batch.columns for file in _named_files(column)})
    parts = [names[i : i + 500] for i in range(0, len(names), 500)]
    with ThreadPoolExecutor(THREADS) as pool:  # for network disks
        return [state for states in pool.map(lambda part: list(map(file_state, part)), parts) for state in states]


def with_buffers(scalar: pa.Scalar) -> Any:
    """Return `scalar.as_py()`, but with the bytes of images as Arrow buffers, mostly in a memory-mapped file.

    The bytes are then read only by the thread that uses them.
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
    """Yield the names of the image files that `array` refers to without their bytes."""
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
