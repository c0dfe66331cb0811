"""Staged folders: files kept for a push as they are now, while training goes on.

A push reads its files in the background. Meanwhile the next save overwrites files in the output directory, and
`save_total_limit` deletes the checkpoint. transformers 5.23 then pushes a mixture of two steps, or fails. A staged
folder has the layout of the repository, so `hf upload REPO FOLDER .` sends it by hand.
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

STAGING_FOLDER = "_hub"  # In the output directory. transformers pushes no file that starts with an underscore.
_UNFINISHED = ".unfinished-"
LARGE = 2**20  # Bytes. Smaller files are copied, not linked.
_AREA = threading.Lock()  # one thread makes folders, another deletes them, at last the staging folder itself


@dataclass(frozen=True)
class Upload:
    """A folder to upload, as `HfApi.upload_folder` takes it."""

    folder: Path
    path_in_repo: str = ""
    ignore_patterns: tuple[str, ...] = ()

    def files(self) -> dict[str, Path]:
        """Return the files by their path in the repository. Raise OSError if the folder cannot be read."""
        found = {path.relative_to(self.folder).as_posix(): path for path in self._walk() if path.is_file()}
        kept = filter_repo_objects(sorted(found), ignore_patterns=[*self.ignore_patterns, *DEFAULT_IGNORE_PATTERNS])
        prefix = f"{self.path_in_repo}/" if self.path_in_repo else ""
        return {prefix + path: found[path] for path in kept}

    def _walk(self) -> Iterable[Path]:
        """Yield the paths in the folder, without the staging folder: the other thread may be deleting there."""

        def pass_over(error: OSError) -> None:  # huggingface_hub 2.4 skips lost+found, too
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
    """Copy or link the files of `uploads` into a new folder in the staging folder, and return it.

    Files of a checkpoint are deleted at some time but never overwritten, so a hard link keeps them at no cost. Weights
    elsewhere are linked, too (see `break_hard_links`). For a large file in the output directory that the Trainer has
    just copied from `checkpoint`, the file of the checkpoint is linked. Other files are copied.

    For the same path, the file of the later upload counts. `late` is whether the output directory may hold later
    weights than `checkpoint`. After an OSError the new folder is deleted.
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
    """Create a folder in the staging folder, marked as unfinished, and return it."""
    staging = Path(output_dir) / STAGING_FOLDER
    for number in itertools.count(1):
        folder = staging / (f"{_UNFINISHED}{name}" if number == 1 else f"{_UNFINISHED}{name}.{number}")
        if not folder.with_name(folder.name.removeprefix(_UNFINISHED)).exists():
            with suppress(FileExistsError), _AREA:
                folder.mkdir(parents=True)
                return folder
    raise AssertionError("a name is free in the end")


def finished(folder: Path) -> Path:
    """Rename a folder of `new_folder` to its name without the mark, and return it."""
    return folder.rename(folder.with_name(folder.name.removeprefix(_UNFINISHED)))


def keep_only(folder: Path, parts: Iterable[str]) -> None:
    """Delete everything in a staged folder except its folders `parts`."""
    kept = set(parts)
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def break_hard_links(folder: str | os.PathLike[str]) -> None:
    """Replace the weights in `folder` that have hard links by copies.

    The Trainer writes into the existing weights of the output directory (transformers 5.23), and would change the
    files of a staged folder.
    """
    for file in Path(folder).glob("*.safetensors"):
        if file.stat().st_nlink > 1:
            copy = file.with_name(f"_{file.name}.tmp")
            shutil.copy2(file, copy)
            copy.replace(file)


def discard(folder: Path) -> None:
    """Delete a staged folder, and the staging folder if it is then empty."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent.name == STAGING_FOLDER:
        with suppress(OSError), _AREA:  # not empty, or gone
            folder.parent.rmdir()


def unsent_folders(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the staged folders that an earlier process did not send. Delete its unfinished ones."""
    staging = Path(output_dir) / STAGING_FOLDER
    folders = sorted(path for path in staging.glob("*") if path.is_dir()) if staging.is_dir() else []
    for path in folders:
        if path.name.startswith(_UNFINISHED):
            discard(path)
    return [path for path in folders if not path.name.startswith(_UNFINISHED)]


def _set_aside(file: Path, target: Path, checkpoint: Path | None, path: str | None) -> None:
    """Link or copy `file` to `target`; `path` is its path in the checkpoint, or None if it may differ from there."""
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
