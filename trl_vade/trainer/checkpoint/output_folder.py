"""A check that the output directory holds one run only, and the deletion of an earlier run on request."""

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
    *("vade_posterior.*", "vade_selection*.jsonl", "vade_summary.json", "vade_report.*", "vade_training.png"),
    "vade_rows.json",  # not vade_run.json: a run that failed in its first step may be started again
)


def refuse_another_run(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse an output directory that holds another run. All processes must take part.

    With `vade_overwrite_output_dir` any folder is accepted. So is the folder of the `checkpoint` to resume from.

    Raises:
        ConfigurationError: on all processes, if the folder holds another run.
    """
    if args.vade_overwrite_output_dir:
        return
    found = on_main_process(lambda: _another_run(args.output_dir, checkpoint))
    if found:
        go_on = "It has no checkpoint for resume_from_checkpoint. Set"
        if any(PREFIX_CHECKPOINT_DIR in name for name in found):
            go_on = "Set resume_from_checkpoint=True to continue that run from its newest complete checkpoint,"
        raise ConfigurationError(
            f"{args.output_dir} already holds a run: {abbreviated(found)}. A new run would overwrite its files or mix "
            f"with them. {go_on} another output_dir for the new run, or vade_overwrite_output_dir=True to delete "
            "these files first."
        )


def claim_output_dir(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse an output directory with another run, or delete that run with `vade_overwrite_output_dir`.

    Arguments and errors are those of `refuse_another_run`. All processes must take part.
    """
    refuse_another_run(args, checkpoint)
    removed = on_main_process(lambda: _remove(args.output_dir, _another_run(args.output_dir, checkpoint)))
    if removed:
        logger.warning(f"vade_overwrite_output_dir=True: deleted the run in {args.output_dir}: {', '.join(removed)}.")


def _another_run(output_dir: str | os.PathLike[str], checkpoint: str | None) -> list[str]:
    """Return the paths of a run in the folder, relative to it. Empty if `checkpoint` is in the folder."""
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
