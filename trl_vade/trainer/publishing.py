"""What the uploads of a run and its model card get of the trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger

from trl_vade.hub.card_parts import CARD_FILE
from trl_vade.hub.model_card import complete_model_card
from trl_vade.hub.staging import Commit
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE
from trl_vade.selection.report.summary import measured_rows, summarise, verdict
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE

from .grpo_config import VADE_DEFAULTS
from .report import live_run
from .run_facts import card_facts

logger = get_logger(__name__)

PRIVATE = (ROWS_FILE, PAGE_FILE, RUN_FILE)  # they hold rows of the data, and local paths


def push_checkpoint(trainer: Any, folder: Path) -> None:
    """Push a checkpoint that is whole: TRL 1.16 writes `entropy_ctrl_state.json` last."""
    if trainer.publication.pushes_saves and trainer.is_world_process_zero():
        trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
        step = trainer.state.global_step
        trainer.publication.push(step, f"Training in progress, step {step}", folder, _has_scores(trainer))


def push_now(trainer: Any, message: str, names: dict[str, Any], card: dict[str, Any]) -> Commit | None:
    """Write the card and push the output directory; `names` may hold another revision and token."""
    if not trainer.is_world_process_zero():
        return None
    publication, usual = trainer.publication, trainer.publication.model
    publication.model = replace(usual, **{name: value for name, value in names.items() if value})
    try:
        trainer.create_model_card(**{"model_name": usual.repo_id.split("/")[-1], **card})
        return publication.push(trainer.state.global_step, message, posterior=_has_scores(trainer))
    finally:
        publication.model = usual


def _has_scores(trainer: Any) -> bool:
    """Return whether there is a posterior to publish: datasets 5.2 reads no empty table."""
    return bool(trainer.selection and trainer.selection.sampler.posterior.visits.any())


def write_model_card(trainer: Any, dataset: str | None = None) -> None:
    """Complete the card that TRL has written into the output directory; on the main process, at every save.

    It must end no run: after an error, which is logged, VADE's part is missing. `dataset` is as in `run_facts`.
    """
    try:
        folder, run = Path(trainer.args.output_dir), live_run(trainer)
        summary = summarise(run) if run else None
        complete_model_card(
            folder / CARD_FILE,
            card_facts(trainer, dataset),
            settings=VADE_DEFAULTS,
            curves=REPORT_FILE if run and (folder / REPORT_FILE).exists() else None,
            posterior_repo=trainer.selection and trainer.publication.posterior_repo,
            hub_model_id=trainer.hub_model_id,
            summary=summary,
            measured=measured_rows(summary) if summary else (),
            verdict=verdict(summary) if summary else (),
            vision=getattr(trainer.model.config, "vision_config", None) is not None,
            adapter=hasattr(trainer.model, "peft_config"),
            revision=trainer.publication.model.revision,
        )
    except Exception as error:
        logger.warning(f"The model card lacks VADE's sections ({type(error).__name__}: {error}).")
