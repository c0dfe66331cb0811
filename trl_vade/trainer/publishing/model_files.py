"""The files of a run that go to the model repository."""

from pathlib import Path

from huggingface_hub.utils import DEFAULT_IGNORE_PATTERNS, filter_repo_objects

from trl_vade.hub.commit import files_in
from trl_vade.hub.outbox import link
from trl_vade.selection.report.record import ROWS_FILE
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import LAST_CHECKPOINT, PREFIX, checkpoints
from ..checkpoint.marker import JIT_MARK

PRIVATE = (ROWS_FILE, PAGE_FILE)  # they hold rows of the training data
_NOT_PUSHED = ("_", PREFIX, LAST_CHECKPOINT)
_FOR_A_RESUME = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "entropy_ctrl_state", "vade_")


def fill_repository(new: Path, output_dir: Path, checkpoint: Path | None, place: str | None) -> None:
    """Put the files of the model repository into `new`, with hard links for those of a checkpoint and for weights.

    The root has the files of the output directory and the model of the checkpoint, unless there is a newer checkpoint.
    The checkpoint is in the folder `place`, unless that is None. No save writes into these files: safetensors makes a
    new one.
    """
    saved, files = files_in(checkpoint) if checkpoint else {}, {}
    if checkpoint is None or checkpoint == checkpoints(checkpoint.parent)[-1]:
        files = {path: file for path, file in files_in(output_dir).items() if not path.startswith(_NOT_PUSHED)}
        files |= {path: file for path, file in saved.items() if _is_of_model(path)}
    files |= {f"{place}/{path}": file for path, file in saved.items() if place}
    unchanging = set(saved.values())
    for path in filter_repo_objects(files, ignore_patterns=[*DEFAULT_IGNORE_PATTERNS, f"*{JIT_MARK}", *PRIVATE]):
        link(files[path], new / path, copy=files[path].suffix != ".safetensors" and files[path] not in unchanging)


def _is_of_model(path: str) -> bool:
    return "/" not in path and (path.startswith("vade_posterior") or not path.startswith(_FOR_A_RESUME))
