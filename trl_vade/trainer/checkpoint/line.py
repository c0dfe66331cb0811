"""The line of a run: the checkpoint that it goes on from, and its own, apart from those of other runs.

`checkpoint-12` may be older than `checkpoint-5`: of a run that was abandoned by a resume from `checkpoint-3`, or of
one before a second `train`. It is moved into a folder `_earlier-<n>`, and never overwritten or resumed.
A new run takes an output directory without another run, or deletes that on request.
"""

import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from trl import GRPOConfig

from trl_vade.files import free_folder, replace_durably
from trl_vade.hub.outbox import OUTBOX_FOLDER
from trl_vade.selection.log import SELECTION_LOG_FILE

from ..main_process import on_main_process
from .folders import (
    MARKER_FILE,
    RESULTS,
    another_run,
    checkpoints,
    find_checkpoint,
    later_checkpoints,
    read_marker,
    refuse_run,
    step_of,
    write_marker,
)

logger = get_logger(__name__)


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder of `find_checkpoint`, all bytes of which are as they were saved. All processes must take part.

    Logs a warning for each newer checkpoint that is incomplete, and for one of which that cannot be told.
    """
    chosen, notices = on_main_process(lambda: find_checkpoint(asked, output_dir, contents=True))
    if chosen is not None and not (Path(chosen) / MARKER_FILE).exists():
        notices.append(
            f"{chosen} has no {MARKER_FILE}: GRPOTrainer saved it, or a run without a posterior was stopped in its "
            "last step. So it is not known whether its files are whole. The run continues from it."
        )
    for notice in notices:
        logger.warning(notice)
    return chosen


def claim_output_dir(args: GRPOConfig, checkpoint: str | None, *, delete: bool = True) -> None:
    """Refuse an output directory with another run, or `delete` that run with `vade_overwrite_output_dir`.

    The folder of the `checkpoint` to resume from is accepted. All processes must take part.

    Raises:
        ConfigurationError: on all processes, if the folder holds another run.
    """
    found = on_main_process(lambda: another_run(args.output_dir, checkpoint))
    if not args.vade_overwrite_output_dir:
        refuse_run(args.output_dir, found)
    elif found and delete:
        # What waits to be pushed is no trace of a run by itself, but another run must not push it.
        on_main_process(lambda: _remove(Path(args.output_dir), [*found, OUTBOX_FOLDER]))
        logger.warning(f"vade_overwrite_output_dir=True: deleted the run in {args.output_dir}: {', '.join(found)}.")


def _remove(folder: Path, names: list[str]) -> None:
    for path in map(folder.joinpath, names):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@dataclass
class Line:
    """The run of this `train` among those of its output directory; see `folders`."""

    run: str
    parent: Mapping[str, Any] | None
    saves: int  # the number of the last save, of all runs: one more than before, or the
    # millisecond, which every copy of the folder has passed, too

    @classmethod
    def begin(cls, output_dir: str, checkpoint: str | None) -> "Line":
        """Set aside what does not lead to `checkpoint`, and return a new run. All processes must take part."""
        return on_main_process(lambda: cls._begin(Path(output_dir), checkpoint))

    @classmethod
    def _begin(cls, folder: Path, checkpoint: str | None) -> "Line":
        origin = read_marker(Path(checkpoint)) if checkpoint else None
        markers = [origin, *(read_marker(path) for path in checkpoints(folder))]
        _set_aside(folder, checkpoint)  # after its numbers are read: a copy may bring these checkpoints back
        parent = {"run": origin and origin["run"], "step": step_of(Path(checkpoint))} if checkpoint else None
        return cls(uuid.uuid4().hex[:16], parent, max((marker["save"] for marker in markers if marker), default=0))

    def mark(self, folder: Path, *, writes: bool) -> None:
        """Mark a checkpoint as complete when all processes have written it. They wait until that is done."""
        PartialState().wait_for_everyone()
        self.saves = max(self.saves + 1, time.time_ns() // 10**6)
        if writes:
            write_marker(folder, run=self.run, parent=self.parent, save=self.saves)
        PartialState().wait_for_everyone()


def _set_aside(folder: Path, checkpoint: str | None) -> None:
    """Move the checkpoints that do not lead to `checkpoint` and the results of their run, with a copy of its log.

    The newest goes first, so that a kill in between leaves a run that can be resumed.
    """
    if not (later := later_checkpoints(folder, checkpoint)):
        return
    target = free_folder(folder)
    if (log := folder / SELECTION_LOG_FILE).exists():
        (shutil.copy2 if checkpoint else replace_durably)(log, target / log.name)
    for path in (*later, *(path for pattern in RESULTS for path in folder.glob(pattern))):
        replace_durably(path, target / path.name)
    logger.warning(
        f"{', '.join(path.name for path in reversed(later))} of an abandoned or earlier run, with its selection log, "
        f"moved to {target}. This run {f'continues from {checkpoint}' if checkpoint else 'starts anew'}. Delete that "
        "folder if nothing in it is needed: save_total_limit does not count it."
    )
