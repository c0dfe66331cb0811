"""Files that are there whole or not at all, also after a crash or a power cut."""

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Write `content` to `path` and wait until the disk has it. A crash may leave part of it: see `save_whole`."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(source: Path, target: Path) -> None:
    """Give the file `source` the name `target`, in one step, and wait until the disk knows."""
    os.replace(source, target)
    if os.name == "posix":  # a rename is durable once its directory is; elsewhere a directory cannot be opened
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path`, which holds the old content or the new at any moment; its folder is created.

    Raises:
        OSError: the disk refused; `path` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_durably(temporary, content)
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
