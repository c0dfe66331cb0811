"""What a run leaves for people: `vade_run.json`, `vade_rows.json`, the report at the end, model card and uploads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from datasets import Dataset

from trl_vade.checks import IntArray
from trl_vade.data.row_views import describe_row, key_text, row_labels
from trl_vade.files import save_whole
from trl_vade.hub.card_parts import CARD_FILE
from trl_vade.hub.model_card import complete_model_card
from trl_vade.hub.staging import Commit
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, SHOWN, Run, read_kept
from trl_vade.selection.report.summary import measured_rows, summarise, verdict
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, write_report

from .callbacks import HarmlessCallback, harmless
from .grpo_config import VADE_DEFAULTS
from .run_facts import card_facts, describe_run, run_names

logger = get_logger(__name__)

USUAL = ("task", "level")  # columns that name the tasks


class VADEReportCallback(HarmlessCallback):
    """Callback that notes what a report shows, writes it at the start and at every save, and reports at the end.

    Everything happens on the main process, and changes nothing of the run.
    `trainer.remove_callback(VADEReportCallback)` switches the report and its files off.
    """

    absence = "The run has no report"

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self.active = trainer.is_world_process_zero()
        self.about: dict[str, Any] = {}

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Write `vade_run.json`; of a run that goes on, take the completions that were shown."""
        content = json.dumps(describe_run(self._trainer), indent=2, ensure_ascii=False, default=str)
        save_whole(Path(args.output_dir, RUN_FILE), f"{content}\n".encode())
        self.about = json.loads(content)  # the page is as if it was made of the file
        if state.global_step and (selection := self._trainer.selection):
            for row, about in read_kept(Path(args.output_dir, ROWS_FILE)).get("rows", {}).items():
                same = about["visits"] == selection.sampler.posterior.visits[int(row)]  # not of an abandoned step
                if same and about["key"] == key_text(int(selection.sample_keys[int(row)])) and "completion" in about:
                    selection.said[int(row)] = about["completion"]

    @harmless
    def on_save(self, args, state, control, **kwargs):
        """Write `vade_rows.json`."""
        if self._trainer.selection is not None and self._trainer.selection.sampler.posterior.step:
            self._save_rows()

    @harmless
    def finish(self) -> None:
        """Write `vade_rows.json` and the report of a run that has ended."""
        run = live_run(self._trainer)
        if run is not None:
            write_report(self._trainer.args.output_dir, replace(run, about=self.about, rows=self._save_rows()))

    def _save_rows(self) -> dict[str, Any]:
        args, selection = self._trainer.args, self._trainer.selection
        named = args.vade_stratify_by
        usual = [*USUAL, "kind"] if args.vade_variants else USUAL
        columns = [named] if named else [name for name in usual if name in selection.dataset.column_names]
        belief = selection.sample_keys, selection.sampler.posterior
        rows = rows_of_report(selection.dataset, *belief, columns, selection.said)
        save_whole(Path(args.output_dir, ROWS_FILE), json.dumps(rows, indent=1, ensure_ascii=False).encode())
        return rows


def live_run(trainer: Any) -> Run | None:
    """Return the run of `trainer` so far, as `record.read_run` would; None before a score, or for a cut log."""
    if trainer.selection is None or not trainer.selection.sampler.posterior.step:
        return None  # an existing log would be an earlier run's
    log = trainer.selection.feedback.log
    lines = log.read() if log.position.lines else []  # else it is the log of an earlier run
    name = Path(trainer.args.output_dir).absolute().name
    run = Run(lines, trainer.state.log_history, run_names(trainer), name=name)
    return run if run.is_whole else None  # if not, it was resumed in another output directory, or with other rows


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
    """Complete TRL's card in the output directory (`dataset`: see `run_facts`). An error is logged and ends no run."""
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


MOST_STRATA = 100  # labels; more are names of rows, and no tasks
NAMED = 50  # rows at each end of the pass rates that have their id and question


def rows_of_report(
    dataset: Dataset, keys: IntArray, posterior: BetaPosterior, columns: Sequence[str], said: Mapping[int, str]
) -> dict[str, Any]:
    """Return the content of `vade_rows.json`: `columns` name the task of a row, `said` has its last completion."""
    seen, means = np.flatnonzero(posterior.visits > 0), posterior.posterior_mean
    # Ties are in the order of the keys as texts, as in `trl-vade posterior show`.
    order = seen[np.lexsort((keys[seen].view(np.uint64), means[seen]))].tolist()
    hardest, easiest = order[:NAMED], order[max(len(order) - NAMED, NAMED) :][::-1]
    shown = {*hardest[:SHOWN], *easiest[:SHOWN]}
    tasks: dict[str, list[int]] = {}
    labels = zip(*(row_labels(dataset, name, seen) for name in columns), strict=True)
    for row, each in zip(seen.tolist(), labels, strict=False):  # no labels without columns
        tasks.setdefault(" ".join(map(str, each)), []).append(row)
    tasks = tasks if len(tasks) <= MOST_STRATA else {}
    task_of = {row: {"task": name} for name, rows in tasks.items() for row in rows}
    return {
        **{"hardest": hardest, "easiest": easiest, "tasks": tasks},
        "rows": {
            str(row): {
                **{"key": key_text(int(keys[row])), "pass_rate": float(means[row])},
                **{"visits": int(posterior.visits[row]), **task_of.get(row, {})},
                **describe_row(dataset, row, picture=row in shown),
                **({"completion": said[row]} if row in said else {}),
            }
            for row in sorted({*hardest, *easiest})
        },
    }
