"""Which checkpoint folders are whole.

The Trainer writes a checkpoint file by file and calls the folder with the highest number the last checkpoint, although
a process that was killed may have left half of one (transformers 5.23, `get_last_checkpoint`). `trainer_state.json` is
what it writes last, and `VADEGRPOTrainer._save_rng_state` sees to it that the other processes are finished by then.

It also deletes old checkpoints file by file (`save_total_limit`), in any order and without a word where it fails, and
resumes from what is left with a new optimiser. So `trainer_state.json` names the files beside it: `CheckpointFiles`.
"""

import json
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
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trl_vade.errors import CheckpointIncompleteError, CheckpointSaveError, VADEError

logger = get_logger(__name__)

JIT_MARK = "checkpoint-is-incomplete.txt"
"""transformers 5.23 puts it beside a save of `enable_jit_checkpoint`, and takes it away when that is finished."""

LAST_CHECKPOINT = "last-checkpoint"
"""The folder of the model repository in which `hub_strategy="checkpoint"` keeps the newest; a downloaded run has it
in its output directory."""

_OWN_FILES = "vade_"
"""Of these a resume has more to say when they are missing or damaged, and `vade_on_mismatch` may do without them."""


class CheckpointFiles(TrainerCallback, ExportableState):
    """Puts the names and sizes of a checkpoint's other files into `trainer_state.json`, just before it is written.

    Attributes:
        folder: the checkpoint that is being written.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None

    def state(self) -> dict[str, Any]:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file()) if self.folder else []
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in files}
        sizes.pop(JIT_MARK, None)
        return {"args": {}, "attributes": {"files": sizes}}


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder to resume from: the one that was asked for, or for True the newest complete one.

    A downloaded `last-checkpoint` is among these.

    Raises:
        CheckpointIncompleteError: the folder asked for is not there or not complete, or no complete one is there.
    """
    if asked is None or asked is False:
        return None
    complete = complete_checkpoints(output_dir)
    newest = f"The newest complete checkpoint is {complete[-1]}." if complete else f"None in {output_dir} is complete."
    if asked is not True:
        missing = missing_part(Path(asked), but_for=_OWN_FILES)
        if missing:
            raise CheckpointIncompleteError(
                f"{asked} cannot be resumed from: {missing}. The run was stopped while it wrote or deleted this "
                f"checkpoint, or this is another folder. {newest} If a file was changed or removed on purpose, take "
                f"its name out of {CheckpointFiles.__name__} in {TRAINER_STATE_NAME}."
            )
        return str(asked)
    candidates = complete or [p for p in checkpoints(output_dir) if missing_part(p, but_for=_OWN_FILES) is None]
    downloaded = Path(output_dir) / LAST_CHECKPOINT
    if missing_part(downloaded, but_for=_OWN_FILES) is None:
        candidates = [downloaded, *candidates]
    if not candidates:
        raise CheckpointIncompleteError(
            f"resume_from_checkpoint=True, and {output_dir} holds no complete checkpoint. Start without "
            "resume_from_checkpoint (with vade_overwrite_output_dir=True if a run left files there), or name the "
            "output_dir of the run that is to go on."
        )
    chosen = max(candidates, key=_step)
    for path in checkpoints(output_dir):
        if _step(path) > _step(chosen):
            logger.warning(
                f"{path} is left out: {missing_part(path)}, so the run was stopped while it wrote it, or the file "
                f"was lost later. It goes on from {chosen}, and writes this one again when it comes there."
            )
    return str(chosen)


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, complete or not, in the order of their steps."""
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    return sorted((path for path in folders if path.is_dir() and _step(path) >= 0), key=_step)


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return those of `checkpoints` that are complete."""
    return [path for path in checkpoints(output_dir) if missing_part(path) is None]


@contextmanager
def explaining_failed_saves(
    folder: str | os.PathLike[str], callbacks: Iterable[TrainerCallback] = ()
) -> Iterator[None]:
    """Say, where saving a checkpoint to `folder` fails, what happened and which checkpoint to go on from.

    A checkpoint that is there already is incomplete until it is written again: it must not look whole half-way. The
    `CheckpointFiles` among `callbacks` is told the folder.

    Raises:
        CheckpointSaveError: in place of any error but trl_vade's own, which have their own words.
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
    except Exception as error:  # OSError, torch's RuntimeError, safetensors' own: whatever a writer makes of a disk
        complete = [path for path in complete_checkpoints(Path(folder).parent) if path != Path(folder)]
        way_out = "and then train(resume_from_checkpoint=True)" if complete else "and start again"
        raise CheckpointSaveError(
            f"{folder} could not be written ({type(error).__name__}: {error}), so the run stops. "
            f"{f'{complete[-1]} is complete' if complete else 'No earlier checkpoint is there'}. Free space or set "
            f"save_total_limit, or see to the permissions, {way_out}."
        ) from error


def _unlink_shared(folder: Path) -> None:
    """Delete files that have another name elsewhere, which keeps what is in them.

    Such are those of a push that was not sent (`staging`), or somebody's copies: torch writes into a file that is
    there, and they would become a mixture of two saves.
    """
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_nlink > 1:
            path.unlink(missing_ok=True)


def missing_part(checkpoint: Path, *, but_for: str | None = None) -> str | None:
    """What a checkpoint folder lacks of being complete, or None; files whose names begin with `but_for` may lack."""
    state_file = checkpoint / TRAINER_STATE_NAME
    if not state_file.is_file():
        return f"{TRAINER_STATE_NAME} is not in it" if checkpoint.is_dir() else "there is no such folder"
    if (checkpoint / JIT_MARK).exists():
        return f"{JIT_MARK} is in it"
    try:
        state = json.loads(state_file.read_text(encoding="utf-8"))
        callbacks = state["global_step"] is not None and state.get("stateful_callbacks", {})
        files = callbacks.get(CheckpointFiles.__name__, {}).get("attributes", {}).get("files", {})
        sizes = {str(name): int(size) for name, size in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{TRAINER_STATE_NAME} in it cannot be read"
    for name, size in sizes.items():
        if but_for is None or not name.startswith(but_for):
            path = checkpoint / name
            if not path.is_file():
                return f"{name} is not in it"
            if path.stat().st_size != size:
                return f"{name} in it has {path.stat().st_size} bytes, and had {size} when it was saved"
    return None


def _step(path: Path) -> int:
    """The optimiser step of a checkpoint folder, -1 where its name has none."""
    if path.name == LAST_CHECKPOINT:
        return int(json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"])
    number = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
    return int(number) if number.isascii() and number.isdigit() else -1
