"""Checkpoints that are written so that `folders` can tell whether they are complete.

The Trainer writes `trainer_state.json` last, and `ResumingTrainer._save_rng_state` waits for the other processes
before that.

The Trainer also deletes old checkpoints file by file (`save_total_limit`), in any order, ignores errors, and would
resume from the rest with a new optimiser. So `CheckpointFiles` lists the other files in `trainer_state.json`.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from trl_vade.errors import CheckpointSaveError, VADEError

from .folders import JIT_MARK, checkpoints, complete_checkpoints, find_checkpoint, missing_part, step_of

logger = get_logger(__name__)


class CheckpointFiles(TrainerCallback, ExportableState):
    """Callback that adds the names and sizes of a checkpoint's other files to `trainer_state.json`."""

    def __init__(self) -> None:
        self.folder: Path | None = None  # the checkpoint that is being written

    def state(self) -> dict[str, Any]:
        """Return the sizes of the files in `folder`, in bytes, in the form that transformers saves."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file()) if self.folder else []
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in files}
        sizes.pop(JIT_MARK, None)
        return {"args": {}, "attributes": {"files": sizes}}


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder of `find_checkpoint`, or None. Logs a warning for each newer checkpoint that is incomplete."""
    chosen = find_checkpoint(asked, output_dir)
    if asked is True:
        for path in checkpoints(output_dir):
            if step_of(path) > step_of(Path(chosen)):
                logger.warning(
                    f"{path} is skipped: {missing_part(path)}. The run was stopped while it wrote this checkpoint, or "
                    f"the file was lost later. The run continues from {chosen} and will write the skipped checkpoint "
                    "again."
                )
    return chosen


@contextmanager
def explaining_failed_saves(
    folder: str | os.PathLike[str], callbacks: Iterable[TrainerCallback] = ()
) -> Iterator[None]:
    """Mark an existing checkpoint in `folder` as incomplete, and explain an error while the block saves it again.

    On entry, `trainer_state.json` and files with hard links elsewhere are deleted from `folder`. A save that stops
    half-way then leaves an incomplete checkpoint, not a mixture of two. The `CheckpointFiles` among the `callbacks`
    gets the folder.

    Raises:
        CheckpointSaveError: in place of any error but `VADEError`. It names the checkpoint to resume from.
    """
    for callback in callbacks:
        if isinstance(callback, CheckpointFiles):
            callback.folder = Path(folder)
    try:
        if PartialState().is_local_main_process:
            with suppress(FileNotFoundError, NotADirectoryError):
                (Path(folder) / TRAINER_STATE_NAME).unlink()
            _unlink_shared(Path(folder))
        PartialState().wait_for_everyone()
        yield
    except VADEError:
        raise
    except Exception as error:  # OSError, RuntimeError of torch, errors of safetensors
        complete = [path for path in complete_checkpoints(Path(folder).parent) if path != Path(folder)]
        way_out = "and then train(resume_from_checkpoint=True)" if complete else "and start again"
        raise CheckpointSaveError(
            f"{folder} could not be written ({type(error).__name__}: {error}), so the run stops. "
            f"{f'{complete[-1]} is complete' if complete else 'There is no earlier checkpoint'}. Free disk space, set "
            f"save_total_limit, or check the permissions, {way_out}."
        ) from error


def _unlink_shared(folder: Path) -> None:
    """Delete files with hard links elsewhere; the links keep the content.

    Such links belong to a waiting push (`staging`) or to a user's copy. torch writes into existing files, so without
    this a link would hold a mixture of two saves.
    """
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_nlink > 1:
            path.unlink(missing_ok=True)
