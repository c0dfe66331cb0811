"""The report that a run leaves in its output directory."""

from typing import Any

from accelerate.logging import get_logger

from trl_vade.selection.report.summary import write_report

from .presets import setting
from .publishing.run_facts import live_run

logger = get_logger(__name__)

MOST_STRATA = 24  # the picture has no more colours


def leave_report(trainer: Any) -> None:
    """Write the table and the picture of a finished run, on the main process. An error is only logged."""
    if not (trainer.args.vade_report and trainer.is_world_process_zero()):
        return
    try:
        run = live_run(trainer)
        if run is not None:
            write_report(trainer.args.output_dir, _strata(trainer), run=run)
    except Exception as error:  # no error of a report may end a finished training
        logger.warning(f"The run has no report ({type(error).__name__}: {error}). The training is not affected.")


def _strata(trainer: Any) -> list[str] | None:
    """Return a label of each row, from the column that the settings name or from `task`, `level` and `kind`."""
    rows = trainer.train_dataset.with_format(None)
    column = setting(trainer.args, "stratify_by") or setting(trainer.args, "strata")
    usual = ("task", "level", "kind") if trainer.args.vade_variants else ("task", "level")
    columns = [column] if column else [name for name in usual if name in rows.column_names]
    labels = [" ".join(map(str, values)) for values in zip(*(rows[name][:] for name in columns), strict=True)]
    return labels if 0 < len({*labels}) <= MOST_STRATA else None
