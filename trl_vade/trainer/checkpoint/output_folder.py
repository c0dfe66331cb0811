"""The output directory holds one run: another one is refused there, or takes its place because the user says so."""

import os
import shutil
from pathlib import Path

from accelerate.logging import get_logger
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError, abbreviated

from ..main_process import on_main_process
from .completeness import LAST_CHECKPOINT, checkpoints

logger = get_logger(__name__)

_OF_A_RUN = (
    f"{LAST_CHECKPOINT}/",
    TRAINER_STATE_NAME,
    *("vade_posterior.*", "vade_selection*.jsonl", "vade_summary.json", "vade_report.png", "vade_training.png"),
)


def refuse_another_run(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse a folder that holds another run than the one that starts. All processes must take part.

    Args:
        args: with VADE's fields. `vade_overwrite_output_dir` accepts any folder.
        checkpoint: that the run resumes from, or None. A checkpoint of this folder accepts it, since its run goes on.

    Raises:
        ConfigurationError: on all processes.
    """
    if args.vade_overwrite_output_dir:
        return
    found = on_main_process(lambda: _another_run(args.output_dir, checkpoint))
    if found:
        go_on = "It has no checkpoint for resume_from_checkpoint. Set"
        if any(PREFIX_CHECKPOINT_DIR in name for name in found):
            go_on = "Set resume_from_checkpoint=True to go on with that run from its newest complete checkpoint,"
        raise ConfigurationError(
            f"{args.output_dir} holds a run already: {abbreviated(found)}. A run that starts in this folder would mix "
            f"with that one, or replace it. {go_on} another output_dir for this one, or "
            "vade_overwrite_output_dir=True to delete these files first."
        )


def claim_output_dir(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse a folder that holds another run, or delete that run if `vade_overwrite_output_dir` says so.

    Arguments and errors are those of `refuse_another_run`. All processes must take part.
    """
    refuse_another_run(args, checkpoint)
    removed = on_main_process(lambda: _remove(args.output_dir, _another_run(args.output_dir, checkpoint)))
    if removed:
        logger.warning(f"vade_overwrite_output_dir=True: deleted the run in {args.output_dir}: {', '.join(removed)}.")


def _another_run(output_dir: str | os.PathLike[str], checkpoint: str | None) -> list[str]:
    """What the folder holds of a run, as paths in it; nothing where `checkpoint` is in the folder."""
    folder = Path(output_dir)
    parents = Path(checkpoint).absolute().parents if checkpoint is not None and folder.exists() else ()
    if any(parent.samefile(folder) for parent in parents):
        return []
    trials = folder.glob("run-*/")  # of a hyperparameter search
    found = [path for place in (folder, *trials) for path in checkpoints(place)]
    found += [path for pattern in _OF_A_RUN for path in folder.glob(pattern) if path.is_dir() or path.lstat().st_size]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _remove(output_dir: str | os.PathLike[str], names: list[str]) -> list[str]:
    for path in (Path(output_dir) / name for name in names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return names
