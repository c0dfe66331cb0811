"""Checkpoints that are complete: the choice of one for a resume, and saves that fail."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate import PartialState
from accelerate.logging import get_logger

from trl_vade.errors import CheckpointSaveError, VADEError

from ..main_process import on_main_process
from .folders import complete_checkpoints, find_checkpoint
from .marker import MARKER_FILE, is_stock

logger = get_logger(__name__)


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder of `find_checkpoint`, all bytes of which are as they were saved. All processes must take part.

    Logs a warning for each newer checkpoint that is incomplete, and for one of which that cannot be told.
    """
    chosen, notices = on_main_process(lambda: find_checkpoint(asked, output_dir, contents=True))
    if chosen is not None and is_stock(Path(chosen)):
        notices.append(
            f"{chosen} has no {MARKER_FILE}: GRPOTrainer saved it, or a run without a posterior was stopped in its last "
            "step. So it is not known whether its files are whole. The run continues from it."
        )
    for notice in notices:
        logger.warning(notice)
    return chosen


@contextmanager
def explaining_failed_saves(folder: Path, *, writes: bool = True) -> Iterator[None]:
    """Delete an existing checkpoint in `folder`, and explain an error while the block saves it again.

    A save that stops half-way then leaves an incomplete checkpoint, not a mixture of two. `writes` is whether this
    process writes the files that all share.

    Raises:
        CheckpointSaveError: in place of any error but `VADEError`. It names the checkpoint to resume from.
    """
    try:
        if writes and folder.is_dir():
            (folder / MARKER_FILE).unlink(missing_ok=True)
            shutil.rmtree(folder)
        PartialState().wait_for_everyone()
        yield
    except VADEError:
        raise
    except Exception as error:  # OSError, RuntimeError of torch, errors of safetensors
        complete = [path for path in complete_checkpoints(folder.parent) if path != folder]
        way_out = "and then train(resume_from_checkpoint=True)" if complete else "and start again"
        raise CheckpointSaveError(
            f"{folder} could not be written ({type(error).__name__}: {error}), so the run stops. "
            f"{f'{complete[-1]} is complete' if complete else 'There is no earlier checkpoint'}. Free disk space, set "
            f"save_total_limit, or check the permissions, {way_out}."
        ) from error
