"""The number that stands for a row, and `python -m trl_vade.data.key_hashing`, which makes it of many rows.

The process reads a stream of Arrow's IPC format on its standard input, a batch of rows at a time, and answers each by
the numbers of its rows, 8 bytes each, little-endian. It ends when its input does, that is with the process that
started it. See `key_processes`.
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
"""What the process says first. Whatever else is printed there is then seen, and not taken for numbers."""

_encode = json.JSONEncoder(default=repr, sort_keys=True).encode


def row_key(row: dict[str, Any]) -> int:
    """Return the 64 bits, as a signed number, of a hash of `row` as JSON. They are saved: they must never change."""
    digest = _digest((_label(name), row[name]) for name in sorted(row))
    return int.from_bytes(digest, "little", signed=True)


def keys_of_columns(columns: dict[str, list[Any]]) -> NDArray[np.int64]:
    """Return (N,) the `row_key` of each row, of columns by their names, at least one, of N values each."""
    names = sorted(columns)
    labels, values = [_label(name) for name in names], [columns[name] for name in names]
    digests = [_digest(zip(labels, row, strict=True)) for row in zip(*values, strict=True)]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def identity(value: Any) -> Any:
    """`value` as JSON, with a digest in place of each image: the same file in another folder is the same image.

    A field without a value is left out: Arrow gives it to every row of a table in which some other row has a value.
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
    """Of the text that `_encode` makes of a whole row, put together in less time: a lone text is one call into C."""
    text = ", ".join([label + _encode(identity(value)) for label, value in fields if value is not None])
    return hashlib.blake2b(f"{{{text}}}".encode(), digest_size=8).digest()


def main() -> None:
    """Answer each batch of the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training process, which ends this one
    answers = sys.stdout.buffer
    answers.write(READY)
    answers.flush()
    with pa.ipc.open_stream(sys.stdin.buffer) as batches:
        for batch in batches:
            answers.write(keys_of_columns(batch.to_pydict()).astype("<i8").tobytes())
            answers.flush()


if __name__ == "__main__":
    main()
