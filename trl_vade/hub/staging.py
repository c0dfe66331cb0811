"""Files set aside for a push: as they are now, whatever training does to them before they are on the Hub.

A push in the background reads its files for as long as it takes. Meanwhile the next save writes over those in the
output directory, and `save_total_limit` deletes the checkpoint: transformers 5.23 then pushes a mixture of two steps,
or fails. A staged folder has the layout of the repository, so `hf upload REPO FOLDER .` sends it by hand.
"""

import itertools
import os
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.utils import DEFAULT_IGNORE_PATTERNS, filter_repo_objects

STAGING_FOLDER = "_hub"
"""In the output directory; transformers pushes nothing that begins with an underscore."""
_UNFINISHED = ".unfinished-"
LARGE = 2**20
"""Bytes; smaller files are copied."""
_AREA = threading.Lock()  # folders are made in one thread and deleted in another, the last one with the area itself


@dataclass(frozen=True)
class Upload:
    """A folder that is to be in the repository, as `HfApi.upload_folder` takes it."""

    folder: Path
    path_in_repo: str = ""
    ignore_patterns: tuple[str, ...] = ()

    def files(self) -> dict[str, Path]:
        """The files by their path in the repository. Raises OSError where the folder cannot be read."""
        found = {path.relative_to(self.folder).as_posix(): path for path in self._walk() if path.is_file()}
        kept = filter_repo_objects(sorted(found), ignore_patterns=[*self.ignore_patterns, *DEFAULT_IGNORE_PATTERNS])
        prefix = f"{self.path_in_repo}/" if self.path_in_repo else ""
        return {prefix + path: found[path] for path in kept}

    def _walk(self) -> Iterable[Path]:
        """What is in the folder, but for the staging area: a push that is over is deleted there at this moment."""

        def pass_over(error: OSError) -> None:  # as huggingface_hub 2.4 does with lost+found, say
            if not isinstance(error, PermissionError) or Path(error.filename) == self.folder:
                raise error

        for folder, inner, names in os.walk(self.folder, onerror=pass_over):
            if Path(folder) == self.folder and STAGING_FOLDER in inner:
                inner.remove(STAGING_FOLDER)
            yield from (Path(folder) / name for name in names)


def stage(
    name: str,
    output_dir: str | os.PathLike[str],
    uploads: Iterable[Upload],
    checkpoint: Path | None,
    *,
    late: bool = False,
) -> Path:
    """Set the files of `uploads` aside under `output_dir`, in a new folder whose name begins with `name`; return it.

    The files of a checkpoint are deleted at some time, and never written into (the trainer's saves see to it), so a
    hard link keeps them at no cost. Weights elsewhere are linked, too (see `break_hard_links`). Of a large file in the
    output directory that is also in `checkpoint`, from which the Trainer has just copied it, that one is linked; the
    others are copied.

    Args:
        name: what the name begins with.
        output_dir: of the run.
        uploads: of two that have a file for the same path, the later one's counts.
        checkpoint: the one that is pushed; None where it is none.
        late: whether the output directory may have other weights by now than `checkpoint`.

    Raises:
        OSError: the disk refused; nothing is left behind.
    """
    folder = new_folder(name, output_dir)
    try:
        for path, file in {path: file for upload in uploads for path, file in upload.files().items()}.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            _set_aside(file.resolve(), target, checkpoint and checkpoint.resolve(), None if late else path)
        return finished(folder)
    except BaseException:
        discard(folder)
        raise


def new_folder(name: str, output_dir: str | os.PathLike[str]) -> Path:
    """Return a new folder in the staging area, marked as unfinished."""
    staging = Path(output_dir) / STAGING_FOLDER
    for number in itertools.count(1):
        folder = staging / (f"{_UNFINISHED}{name}" if number == 1 else f"{_UNFINISHED}{name}.{number}")
        if not folder.with_name(folder.name.removeprefix(_UNFINISHED)).exists():
            with suppress(FileExistsError), _AREA:
                folder.mkdir(parents=True)
                return folder
    raise AssertionError("a name is free in the end")


def finished(folder: Path) -> Path:
    """Take the mark from a folder of `new_folder`, and return it under its name."""
    return folder.rename(folder.with_name(folder.name.removeprefix(_UNFINISHED)))


def keep_only(folder: Path, parts: Iterable[str]) -> None:
    """Delete what is in a staged folder but for the folders `parts` of it."""
    kept = set(parts)
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def break_hard_links(folder: str | os.PathLike[str]) -> None:
    """Give the weights in `folder` files of their own again, where a staged folder has links to them.

    The Trainer copies a checkpoint's weights into the files of the output directory (transformers 5.23).
    """
    for file in Path(folder).glob("*.safetensors"):
        if file.stat().st_nlink > 1:
            copy = file.with_name(f"_{file.name}.tmp")
            shutil.copy2(file, copy)
            copy.replace(file)


def discard(folder: Path) -> None:
    """Delete a staged folder, and the folder of all of them where it was the last."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name == STAGING_FOLDER:
        with suppress(OSError), _AREA:  # it is not empty, or gone
            folder.parent.rmdir()


def unsent_folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """The staged folders of an earlier process, which ended before they were on the Hub."""
    staging = Path(output_dir) / STAGING_FOLDER
    folders = sorted(path for path in staging.glob("*") if path.is_dir()) if staging.is_dir() else []
    for path in folders:
        if path.name.startswith(_UNFINISHED):
            discard(path)
    return [path for path in folders if not path.name.startswith(_UNFINISHED)]


def _set_aside(file: Path, target: Path, checkpoint: Path | None, path: str | None) -> None:
    """Link or copy `file`; `path` is that of the file in the checkpoint that it was copied from, if it was."""
    unchanging = checkpoint in file.parents if checkpoint else file.suffix == ".safetensors"
    if checkpoint and path and not unchanging and file.stat().st_size >= LARGE:
        twin = checkpoint / path
        if twin.is_file() and twin.stat().st_size == file.stat().st_size:
            file, unchanging = twin, True
    if unchanging:
        try:
            os.link(file, target)
            return
        except OSError:  # another file system, or one without hard links
            pass
    shutil.copy2(file, target)
