"""The files that a run leaves for people: `vade_run.json`, `vade_rows.json`, and the report at the end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger

from trl_vade.data.row_views import key_text
from trl_vade.files import save_whole
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, Run, read_kept
from trl_vade.selection.report.rows import rows_of_report
from trl_vade.selection.report.writing import write_report

from .callbacks import HarmlessCallback, harmless
from .run_facts import describe_run, run_names

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
    """Return the run of `trainer` so far, as `record.read_run` would.

    None if no generation batch was scored, or if the log of the choices lacks its beginning.
    """
    if trainer.selection is None or not trainer.selection.sampler.posterior.step:
        return None  # an existing log would be an earlier run's
    log = trainer.selection.feedback.log
    lines = log.read() if log.position.lines else []  # else it is the log of an earlier run
    name = Path(trainer.args.output_dir).absolute().name
    run = Run(lines, trainer.state.log_history, run_names(trainer), name=name)
    return run if run.is_whole else None  # if not, it was resumed in another output directory, or with other rows
