"""The line of a run: its id, and the checkpoints that it goes back to."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from accelerate import PartialState
from accelerate.logging import get_logger

from ..main_process import on_main_process
from .folders import MARKER_FILE, find_checkpoint, look_at, write_marker

logger = get_logger(__name__)


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder of `find_checkpoint`. All processes must take part.

    Logs a warning for each newer checkpoint that is not whole, and for one of which that cannot be told.
    """
    chosen, notices = on_main_process(lambda: find_checkpoint(asked, output_dir))
    if chosen is not None and not (Path(chosen) / MARKER_FILE).exists():
        notices.append(
            f"{chosen} has no {MARKER_FILE}: GRPOTrainer saved it, or a run without a posterior was stopped in its "
            "last step. So it is not known whether its files are whole. The run continues from it."
        )
    for notice in notices:
        logger.warning(notice)
    return chosen


@dataclass(frozen=True)
class Line:
    """The run of this `train`, and run and step of the checkpoints that it goes back to; see `folders`."""

    run: str
    ancestors: tuple[tuple[str, int], ...]

    @classmethod
    def begin(cls, checkpoint: str | None) -> "Line":
        """Return a new run, which goes on from `checkpoint`. All processes must take part."""
        return on_main_process(
            lambda: cls(uuid.uuid4().hex[:16], look_at(Path(checkpoint)).line if checkpoint else ())
        )

    def mark(self, folder: Path, *, writes: bool) -> None:
        """Mark a checkpoint as whole when all processes have written it. They wait until that is done."""
        PartialState().wait_for_everyone()
        if writes:
            write_marker(folder, run=self.run, ancestors=self.ancestors)
        PartialState().wait_for_everyone()
