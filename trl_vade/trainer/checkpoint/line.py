"""The line of a run: its checkpoints and its log, apart from those of a run that was abandoned or came before.

`checkpoint-12` may be of another run than the newest one: after a resume from `checkpoint-3` by name, or a second `train`.
Such checkpoints are moved into a folder `_earlier-<n>`, and never overwritten or resumed.
"""

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger

from trl_vade.files import free_folder, replace_durably
from trl_vade.selection.log import SELECTION_LOG_FILE

from ..main_process import on_main_process
from .folders import RESULTS, checkpoints, later_checkpoints, step_of
from .marker import read_marker, write_marker

logger = get_logger(__name__)


@dataclass
class Line:
    """The run of this `train` among those of its output directory."""

    run: str
    parent: Mapping[str, Any] | None  # `run` and `step` of the checkpoint that it resumed from
    saves: int  # so far, of all runs

    @classmethod
    def begin(cls, output_dir: str, checkpoint: str | None) -> "Line":
        """Set aside what does not lead to `checkpoint`, and return a new run. All processes must take part."""
        return on_main_process(lambda: cls._begin(Path(output_dir), checkpoint))

    @classmethod
    def _begin(cls, folder: Path, checkpoint: str | None) -> "Line":
        _set_aside(folder, checkpoint)
        markers = [read_marker(path) for path in checkpoints(folder)]
        origin = read_marker(Path(checkpoint)) if checkpoint else None
        saves = max((marker.save for marker in (*markers, origin) if marker), default=0)
        parent = {"run": origin and origin.run, "step": step_of(Path(checkpoint))} if checkpoint else None
        return cls(uuid.uuid4().hex[:16], parent, saves)

    def mark(self, folder: Path, *, writes: bool) -> None:
        """Mark a checkpoint as complete when all processes have written it. They wait until that is done."""
        PartialState().wait_for_everyone()
        self.saves += 1
        if writes:
            write_marker(folder, run=self.run, parent=self.parent, save=self.saves)
        PartialState().wait_for_everyone()


def _set_aside(folder: Path, checkpoint: str | None) -> None:
    """Move the checkpoints that `checkpoint` does not lead from, the newest first, and say so once.

    A copy of the selection log goes with them (the log itself, without a `checkpoint`), and the results in the folder. After a kill in between, the rest of the
    run is still one that can be resumed.
    """
    later = later_checkpoints(folder, checkpoint)
    if not later:
        return
    target = free_folder(folder)
    if (log := folder / SELECTION_LOG_FILE).exists():
        (shutil.copy2 if checkpoint else replace_durably)(log, target / log.name)
    results = [path for pattern in RESULTS for path in folder.glob(pattern)]
    for path in (*later, *results):
        replace_durably(path, target / path.name)
    names = ", ".join(path.name for path in reversed(later))
    logger.warning(
        f"{names} of an abandoned or earlier run, with its selection log, moved to {target}. This run "
        f"{f'continues from {checkpoint}' if checkpoint else 'starts anew'} and writes checkpoints of its own. Delete "
        "that folder if nothing in it is needed: save_total_limit does not count it."
    )
