"""Files that survive a crash, and files that come with the package."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent


def replace_durably(source: Path, target: Path) -> None:
    """Rename the file `source` to `target`, atomically, and sync the folder to disk."""
    os.replace(source, target)
    if os.name == "posix":  # other systems cannot open a directory
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically and create its folder. After an OSError `path` is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def packaged(name: str) -> Path:
    """Return the path of the file or folder `name` that comes with the package, such as "eval/tasks".

    A wheel has it inside the package, the repository beside it. Without it, it is a `FileNotFoundError`.
    """
    for place in (places := (_PACKAGE / name, _PACKAGE.parent / name)):
        if place.exists():
            return place
    raise FileNotFoundError(f"Neither {places[0]} nor {places[1]} is there. Install trl_vade again.")
