"""Keys of rows, and the process `python -m trl_vade.data.key_hashing` that computes them; see `key_processes`.

The process reads batches of rows in Arrow's IPC format from its standard input. It answers each batch with the keys of
its rows, 8 bytes each, little-endian. It ends with its input, and so with its parent process.
"""

import hashlib
import json
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

READY = b"trl_vade.data.key_hashing\n"
"""The first line of the process's output. Anything else printed there is detected and not read as keys."""

_encode = json.JSONEncoder(default=repr, sort_keys=True).encode


def row_key(row: dict[str, Any]) -> int:
    """Return a signed 64-bit hash of `row` as JSON. Saved posteriors hold these keys, so they must never change."""
    digest = _digest((_label(name), row[name]) for name in sorted(row))
    return int.from_bytes(digest, "little", signed=True)


def keys_of_columns(columns: dict[str, list[Any]]) -> NDArray[np.int64]:
    """Return the `row_key` of each row, (N,), from at least one column of N values."""
    names = sorted(columns)
    labels, values = [_label(name) for name in names], [columns[name] for name in names]
    digests = [_digest(zip(labels, row, strict=True)) for row in zip(*values, strict=True)]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def identity(value: Any) -> Any:
    """Return `value` with a digest in place of each image, so that a moved file is the same image.

    Fields without a value are left out, because Arrow adds a field to all rows if one row has it.
    """
    if isinstance(value, dict):
        if value.keys() == {"bytes", "path"}:
            content, path = value["bytes"], value["path"]
            if content is None and path is not None:
                content = Path(path).read_bytes() if Path(path).is_file() else path.encode()
            return hashlib.blake2b(content or b"").hexdigest()
        return {name: identity(part) for name, part in value.items() if part is not None}
    return [identity(part) for part in value] if isinstance(value, list) else value


def _label(name: str) -> str:
    return f"{_encode(name)}: "


def _digest(fields: Iterable[tuple[str, Any]]) -> bytes:
    """Return the digest of the row's JSON. Encoding field by field is faster than encoding the whole row."""
    text = ", ".join([label + _encode(identity(value)) for label, value in fields if value is not None])
    return hashlib.blake2b(f"{{{text}}}".encode(), digest_size=8).digest()


def main() -> None:
    """Answer each batch of the standard input with its keys."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the training process, which ends this one
    answers = sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    with pa.ipc.open_stream(sys.stdin.buffer) as batches:
        for batch in batches:
            answers.write(keys_of_columns(batch.to_pydict()).astype("<i8").tobytes())
            answers.flush()


if __name__ == "__main__":
    main()
