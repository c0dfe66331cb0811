"""The files of a run that go to the model repository."""

from pathlib import Path

from huggingface_hub.utils import DEFAULT_IGNORE_PATTERNS, filter_repo_objects

from trl_vade.hub.commit import files_in
from trl_vade.hub.outbox import link
from trl_vade.selection.report.record import ROWS_FILE
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import JIT_MARK, LAST_CHECKPOINT, PREFIX

PRIVATE = (ROWS_FILE, PAGE_FILE)  # they hold rows of the training data
_NOT_OF_THE_RUN = ("_", PREFIX, LAST_CHECKPOINT, "lost+found")
_FOR_A_RESUME = ("optimizer", "scheduler", "scaler", "rng_state", "trainer_state", "entropy_ctrl_state", "vade_")


def fill_repository(new: Path, output_dir: Path, checkpoint: Path | None, place: str | None, *, root: bool) -> None:
    """Put the files of the model repository into `new`, with hard links for the files of a checkpoint and for weights.

    With `root` the files of the output directory and the model of the checkpoint are in the root. The checkpoint is
    in the folder `place`, unless that is None. No save writes into these files: safetensors makes a new one.
    """
    saved = files_in(checkpoint) if checkpoint else {}
    files = _of_run(output_dir) if root else {}
    files |= {path: file for path, file in saved.items() if root and _is_of_model(path)}
    files |= {f"{place}/{path}": file for path, file in saved.items() if place}
    own = set(saved.values())
    for path in filter_repo_objects(files, ignore_patterns=[*DEFAULT_IGNORE_PATTERNS, f"*{JIT_MARK}", *PRIVATE]):
        link(files[path], new / path, copy=files[path] not in own and files[path].suffix != ".safetensors")


def _of_run(output_dir: Path) -> dict[str, Path]:
    found = {}
    for top in output_dir.iterdir():
        if not top.name.startswith(_NOT_OF_THE_RUN):
            inside = files_in(top) if top.is_dir() else {"": top}
            found |= {f"{top.name}/{path}".rstrip("/"): file for path, file in inside.items()}
    return found


def _is_of_model(path: str) -> bool:
    return "/" not in path and (path.startswith("vade_posterior") or not path.startswith(_FOR_A_RESUME))
