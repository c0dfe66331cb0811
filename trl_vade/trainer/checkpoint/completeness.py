"""Complete and incomplete checkpoint folders.

The Trainer writes a checkpoint file by file, and takes the folder with the highest number as the last checkpoint, also
if a killed process left it half written (transformers 5.23, `get_last_checkpoint`). The Trainer writes
`trainer_state.json` last, and `ResumingTrainer._save_rng_state` waits for the other processes before that.

The Trainer also deletes old checkpoints file by file (`save_total_limit`), in any order, ignores errors, and would
resume from the rest with a new optimiser. So `CheckpointFiles` lists the other files in `trainer_state.json`.
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
"""The file with which transformers 5.23 marks an unfinished save of `enable_jit_checkpoint`."""

LAST_CHECKPOINT = "last-checkpoint"
"""The folder of the newest checkpoint in a model repository, with `hub_strategy="checkpoint"`. A downloaded run has it
in its output directory."""

_OWN_FILES = "vade_"
"""Prefix of files that a resume checks itself. `vade_on_mismatch` may allow a resume without them."""


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
    """Return the folder to resume from, or None. Logs a warning for each newer checkpoint that is incomplete.

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
                f"its name from {CheckpointFiles.__name__} in {TRAINER_STATE_NAME}."
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
    chosen = max(candidates, key=_step)
    for path in checkpoints(output_dir):
        if _step(path) > _step(chosen):
            logger.warning(
                f"{path} is skipped: {missing_part(path)}. The run was stopped while it wrote this checkpoint, or the "
                f"file was lost later. The run continues from {chosen} and will write the skipped checkpoint again."
            )
    return str(chosen)


def checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoint folders of a run, complete or not, in the order of their steps."""
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    return sorted((path for path in folders if path.is_dir() and _step(path) >= 0), key=_step)


def complete_checkpoints(output_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the complete checkpoint folders of a run, in the order of their steps."""
    return [path for path in checkpoints(output_dir) if missing_part(path) is None]


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


def missing_part(checkpoint: Path, *, but_for: str | None = None) -> str | None:
    """Return the reason why a checkpoint folder is incomplete or missing, or None if it is complete.

    Files with the prefix `but_for` may be missing or damaged.
    """
    state_file = checkpoint / TRAINER_STATE_NAME
    if not state_file.is_file():
        return f"{TRAINER_STATE_NAME} is missing" if checkpoint.is_dir() else "there is no such folder"
    if (checkpoint / JIT_MARK).exists():
        return f"it holds {JIT_MARK}"
    try:
        state = json.loads(state_file.read_text(encoding="utf-8"))
        callbacks = state["global_step"] is not None and state.get("stateful_callbacks", {})
        files = callbacks.get(CheckpointFiles.__name__, {}).get("attributes", {}).get("files", {})
        sizes = {str(name): int(size) for name, size in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"its {TRAINER_STATE_NAME} cannot be read"
    for name, size in sizes.items():
        if but_for is None or not name.startswith(but_for):
            path = checkpoint / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != size:
                return f"{name} has {path.stat().st_size} bytes and had {size} when it was saved"
    return None


def _step(path: Path) -> int:
    """Return the optimiser step of a checkpoint folder, or -1 if its name has none."""
    if path.name == LAST_CHECKPOINT:
        return int(json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"])
    number = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
    return int(number) if number.isascii() and number.isdigit() else -1
