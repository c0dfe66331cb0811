"""One run a folder: `vade_lock.json`, locked as long as `train` runs. Any death of the process releases it."""

import errno
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from trl_vade.errors import CheckpointSaveError, ConfigurationError

from ..main_process import on_main_process

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = "vade_lock.json"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # of this file system


@contextmanager
def holding(output_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other runs out of `output_dir` within the block. All processes must take part.

    Raises:
        ConfigurationError: on all processes, if another run holds the folder.
        CheckpointSaveError: on all processes, if the folder cannot be written.
    """
    held: list[IO[str]] = []
    on_main_process(lambda: held.append(_hold(Path(output_dir))))
    try:
        yield
    finally:
        for file in held:
            file.close()


def _hold(folder: Path) -> IO[str]:
    """Return the file with a record lock, in which forked workers have no part: they cannot keep it.

    Trap: the lock is gone as soon as this process closes the file anywhere, so nothing else may open it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # the file below may be there, in a folder that takes no other one
            file = open(folder / LOCK_FILE, "a+", encoding="utf-8")  # noqa: SIM115
        try:
            if fcntl:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            raise ConfigurationError(
                f"output_dir={str(folder)!r} is in use by another run ({file.read().strip()}). Wait for its "
                "end, stop it, or set another output_dir."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        now = datetime.now(UTC).isoformat(timespec="seconds")
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "start": now}) + "\n")
        file.flush()
        return file
    except OSError as error:
        raise CheckpointSaveError(
            f"output_dir={str(folder)!r} cannot be written ({type(error).__name__}: {error}), so this run could save "
            "nothing. Free disk space, check the permissions, or set another output_dir."
        ) from error
