"""What a stranger's Parquet file may unpack to. It is decided before a column is decoded.

Sizes in the footer may lie: Arrow 26.0 unpacks what the pages say. So the bound is on what cannot lie: the number of
rows that are asked for, and the packed bytes times the most that their compression can make of them.

The footer is read here, as Arrow's own accessors end the process over some damaged ones. It is a struct in Thrift's
compact protocol. Its fields are known by number and kind, because Arrow passes over a field of another kind.
"""

import io
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.errors import SnapshotCorruptError

MOST_PARTS = 500
"""Columns, and row groups, of a file."""
MOST_RATIO = {0: 1, 1: 22}
"""Bytes that a byte can become: without compression, and by Snappy. No other compression has such a bound."""
LEAST_ROW = 40
"""Bytes of a row of which any number may be in a file. `table.encode_table` writes at least 53."""
FREE_ROWS, FREE_BYTES, FREE_FOOTER = 100_000, 2**25, 2**20
_I32, _I64, _BYTES, _LIST, _STRUCT = 5, 6, 8, 9, 12


def open_bounded(path: str | os.PathLike[str]) -> pq.ParquetFile:
    """Open a Parquet file, or raise `SnapshotCorruptError` if it may unpack to much more than a posterior."""
    size = os.path.getsize(path)
    file = pq.ParquetFile(path, thrift_container_size_limit=MOST_PARTS, thrift_string_size_limit=FREE_FOOTER)
    _check(path, size, "bytes of a footer", file.metadata.serialized_size, FREE_FOOTER)
    rows, packed, ratios = _facts(path, file.metadata.serialized_size)
    unpacked = sum(part * ratio for part, ratio in zip(packed, ratios, strict=True))
    _check(path, size, "columns in a compression other than Snappy", ratios.count(0), 0)
    _check(path, size, "rows", rows, max(FREE_ROWS, size // LEAST_ROW))
    _check(path, size, "packed bytes", sum(packed), size)
    _check(path, size, "bytes if unpacked", unpacked, max(FREE_BYTES, size))
    return file


def _check(path: Any, size: int, name: str, number: int, most: int) -> None:
    if number > most:
        raise SnapshotCorruptError(
            f"{path} may have {number:,} {name}, and a file of {size:,} bytes at most {most:,}. Nothing of it was "
            "decoded, since a small file could fill the memory. If you trust it, write it again with "
            '`pyarrow.parquet.write_table(..., compression="none")`.'
        )


def _facts(path: Any, length: int) -> tuple[int, list[int], list[int]]:
    """Return the number of rows, and of each column chunk the packed bytes and the `MOST_RATIO`, 0 if it has none."""
    with open(path, "rb") as file:
        file.seek(-8 - length, os.SEEK_END)
        footer = io.BytesIO(file.read(length))
    try:
        groups = _struct(footer)[4, _LIST]
        chunks = [chunk[3, _STRUCT] for group in groups for chunk in group[1, _LIST]]
        rows = sum(group[3, _I64] for group in groups)
        packed = [max(chunk[7, _I64], 0) for chunk in chunks]
        return rows, packed, [MOST_RATIO.get(chunk[4, _I32], 0) for chunk in chunks]
    except (ArithmeticError, LookupError, RecursionError, TypeError) as error:
        raise pa.ArrowInvalid(f"the footer is damaged: {error!r}") from error


def _struct(data: io.BytesIO) -> dict[tuple[int, int], Any]:
    fields: dict[tuple[int, int], Any] = {}
    number = 0
    while head := data.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _integer(data)
        kind = head & 15
        fields[number, kind] = kind == 1 if kind in (1, 2) else _value(data, kind)
    return fields


def _value(data: io.BytesIO, kind: int) -> Any:
    if kind in (4, _I32, _I64):
        return _integer(data)
    if kind == _BYTES:
        return data.read(_varint(data))
    if kind == _LIST:
        head = data.read(1)[0]
        return [_value(data, head & 15) for _ in range(_varint(data) if head >> 4 == 15 else head >> 4)]
    if kind == _STRUCT:
        return _struct(data)
    return data.read({7: 8}.get(kind, 1))[0]


def _integer(data: io.BytesIO) -> int:
    number = _varint(data)
    return number >> 1 ^ -(number & 1)


def _varint(data: io.BytesIO) -> int:
    byte = data.read(1)[0]
    return byte if byte < 128 else byte - 128 + 128 * _varint(data)
