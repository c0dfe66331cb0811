"""A check that the output directory holds one run only, and the deletion of an earlier run on request."""

import shutil
from pathlib import Path

from accelerate.logging import get_logger
from trl import GRPOConfig

from ..main_process import on_main_process
from .folders import another_run, refuse_run

logger = get_logger(__name__)


def refuse_another_run(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse an output directory that holds another run. All processes must take part.

    With `vade_overwrite_output_dir` any folder is accepted. So is the folder of the `checkpoint` to resume from.

    Raises:
        ConfigurationError: on all processes, if the folder holds another run.
    """
    if args.vade_overwrite_output_dir:
        return
    found = on_main_process(lambda: another_run(args.output_dir, checkpoint))
    refuse_run(args.output_dir, found)


def claim_output_dir(args: GRPOConfig, checkpoint: str | None) -> None:
    """Refuse an output directory with another run, or delete that run with `vade_overwrite_output_dir`.

    Arguments and errors are those of `refuse_another_run`. All processes must take part.
    """
    refuse_another_run(args, checkpoint)
    removed = on_main_process(lambda: _remove(args.output_dir, another_run(args.output_dir, checkpoint)))
    if removed:
        logger.warning(f"vade_overwrite_output_dir=True: deleted the run in {args.output_dir}: {', '.join(removed)}.")


def _remove(output_dir: str, names: list[str]) -> list[str]:
    for path in (Path(output_dir) / name for name in names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return names
