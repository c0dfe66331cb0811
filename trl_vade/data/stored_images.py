"""Images as a table of Arrow has them: `{"bytes", "path"}`, in the table itself or by the name of a file."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from datasets import Dataset

from .cached_values import file_state

THREADS = 8
"""That read or hash the images of one process: reading waits for the disk, hashing lets go of the GIL."""


def may_hold_images(kind: pa.DataType) -> bool:
    """Whether values of this type can have images in them. An extension type may have anything."""
    if isinstance(kind, pa.BaseExtensionType):
        return True
    names = {field.name for field in kind} if pa.types.is_struct(kind) else set()
    return names == {"bytes", "path"} or any(may_hold_images(kind.field(i).type) for i in range(kind.num_fields))


def image_files(dataset: Dataset, columns: list[str]) -> list[tuple[Any, ...]]:
    """`cached_values.file_state` of the files that hold images of these columns, in order."""
    table = dataset.data.select(columns)
    if not any(may_hold_images(kind) for kind in table.schema.types):
        return []
    if next((file for column in table.columns for file in _named_files(column)), None) is None:
        return []  # the table holds all images itself, and Arrow would copy them for what comes next
    batches = dataset.select_columns(columns).with_format("arrow").iter(batch_size=1000)
    names = sorted({file for batch in batches for column in batch.columns for file in _named_files(column)})
    parts = [names[i : i + 500] for i in range(0, len(names), 500)]
    with ThreadPoolExecutor(THREADS) as pool:  # for disks behind a network
        return [state for states in pool.map(lambda part: list(map(file_state, part)), parts) for state in states]


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
