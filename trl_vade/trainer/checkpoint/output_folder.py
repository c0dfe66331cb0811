"""A check that the output directory holds one run only, and the deletion of an earlier run on request."""

import shutil
from pathlib import Path

from accelerate.logging import get_logger
from trl import GRPOConfig

from trl_vade.hub.outbox import OUTBOX_FOLDER

from ..main_process import on_main_process
from .folders import another_run, refuse_run

logger = get_logger(__name__)


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
        on_main_process(lambda: _remove([Path(args.output_dir) / name for name in [*found, OUTBOX_FOLDER]]))
        logger.warning(f"vade_overwrite_output_dir=True: deleted the run in {args.output_dir}: {', '.join(found)}.")


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
