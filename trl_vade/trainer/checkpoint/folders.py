"""The checkpoint folders of a run, complete or not, as they lie on the disk. Nothing here loads torch.

The Trainer writes a checkpoint file by file, and takes the folder with the highest number as the last checkpoint, also
if a killed process left it half written (transformers 5.23, `get_last_checkpoint`). The Trainer writes
`trainer_state.json` last, and `completeness` makes it list the other files.
"""

import json
import os
from pathlib import Path

from trl_vade.errors import CheckpointIncompleteError, ConfigurationError, abbreviated
from trl_vade.selection.report.record import TRAINER_STATE_FILE

PREFIX = "checkpoint-"
FILES = "CheckpointFiles"
"""The entry of `trainer_state.json` with the names and sizes of a checkpoint's other files."""

JIT_MARK = "checkpoint-is-incomplete.txt"
"""The file with which transformers 5.23 marks an unfinished save of `enable_jit_checkpoint`."""

LAST_CHECKPOINT = "last-checkpoint"
"""The folder of the newest checkpoint in a model repository, with `hub_strategy="checkpoint"`. A downloaded run has it
in its output directory."""

_OWN_FILES = "vade_"
"""Prefix of files that a resume checks itself. `vade_on_mismatch` may allow a resume without them."""


_OF_A_RUN = (
    f"{LAST_CHECKPOINT}/",
    TRAINER_STATE_FILE,
    *("vade_posterior.*", "vade_selection*.jsonl", "vade_summary.json", "vade_report.*", "vade_training.png"),
    "vade_rows.json",  # not vade_run.json: a run that failed in its first step may be started again
)


def find_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder to resume from, or None.

    `asked` is a folder, or True for the newest complete checkpoint in `output_dir`, a downloaded one included.

    Raises:
        CheckpointIncompleteError: the folder is missing or incomplete, or there is no complete checkpoint.
    """
    if asked is None or asked is False:
        return None
    complete = complete_checkpoints(output_dir)
    newest = f"The newest complete checkpoint is {complete[-1]}." if complete else f"{output_dir} has no complete one."
    if asked is not True:
        missing = missing_part(Path(asked), but_for=_OWN_FILES)
        if missing:
            raise CheckpointIncompleteError(
                f"The run cannot resume from {asked}: {missing}. The run was stopped while it wrote or deleted this "
                f"checkpoint, or this is another folder. {newest} If a file was changed or removed on purpose, remove "
                f"its name from {FILES} in {TRAINER_STATE_FILE}."
            )
        return str(asked)
    candidates = complete or [p for p in checkpoints(output_dir) if missing_part(p, but_for=_OWN_FILES) is None]
    downloaded = Path(output_dir) / LAST_CHECKPOINT
    if missing_part(downloaded, but_for=_OWN_FILES) is None:
        candidates = [downloaded, *candidates]
    if not candidates:
        raise CheckpointIncompleteError(
            f"resume_from_checkpoint=True, but {output_dir} holds no complete checkpoint. Start without "
            "resume_from_checkpoint (with vade_overwrite_output_dir=True if a run left files there), or set the "
            "output_dir of the run to continue."
        )
    return str(max(candidates, key=step_of))


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, complete or not, in the order of their steps."""
    folders = Path(output_dir).glob(f"{PREFIX}*")
    return sorted((path for path in folders if path.is_dir() and step_of(path) >= 0), key=step_of)


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the complete checkpoint folders of a run, in the order of their steps."""
    return [path for path in checkpoints(output_dir) if missing_part(path) is None]


def missing_part(checkpoint: Path, *, but_for: str | None = None) -> str | None:
    """Return the reason why a checkpoint folder is incomplete or missing, or None if it is complete.

    Files with the prefix `but_for` may be missing or damaged.
    """
    state_file = checkpoint / TRAINER_STATE_FILE
    if not state_file.is_file():
        return f"{TRAINER_STATE_FILE} is missing" if checkpoint.is_dir() else "there is no such folder"
    if (checkpoint / JIT_MARK).exists():
        return f"it holds {JIT_MARK}"
    try:
        state = json.loads(state_file.read_text(encoding="utf-8"))
        callbacks = state["global_step"] is not None and state.get("stateful_callbacks", {})
        files = callbacks.get(FILES, {}).get("attributes", {}).get("files", {})
        sizes = {str(name): int(size) for name, size in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"its {TRAINER_STATE_FILE} cannot be read"
    for name, size in sizes.items():
        if but_for is None or not name.startswith(but_for):
            path = checkpoint / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size} bytes and had {size} when it was saved"
    return None


def step_of(path: Path) -> int:
    """Return the optimiser step of a checkpoint folder, or -1 if its name has none."""
    if path.name == LAST_CHECKPOINT:
        return int(json.loads((path / TRAINER_STATE_FILE).read_text(encoding="utf-8"))["global_step"])
    number = path.name.removeprefix(PREFIX)
    return int(number) if number.isascii() and number.isdigit() else -1


def another_run(output_dir: str | os.PathLike[str], checkpoint: str | None) -> list[str]:
    """Return the paths of a run in the folder, relative to it. Empty if `checkpoint` is in the folder."""
    folder = Path(output_dir)
    parents = Path(checkpoint).absolute().parents if checkpoint is not None and folder.exists() else ()
    if any(parent.samefile(folder) for parent in parents):
        return []
    trials = folder.glob("run-*/")  # of a hyperparameter search
    found = [path for place in (folder, *trials) for path in checkpoints(place)]
    found += [path for pattern in _OF_A_RUN for path in folder.glob(pattern) if path.is_dir() or path.lstat().st_size]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def refuse_run(output_dir: str | os.PathLike[str], found: list[str]) -> None:
    """Raise `ConfigurationError` if `another_run` has found something."""
    if found:
        go_on = "It has no checkpoint for resume_from_checkpoint. Set"
        if any(PREFIX in name for name in found):
            go_on = "Set resume_from_checkpoint=True to continue that run from its newest complete checkpoint,"
        raise ConfigurationError(
            f"{output_dir} already holds a run: {abbreviated(found)}. A new run would overwrite its files or mix "
            f"with them. {go_on} another output_dir for the new run, or vade_overwrite_output_dir=True to delete "
            "these files first."
        )
