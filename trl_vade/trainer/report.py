"""The files that a run leaves for people: `vade_run.json`, `vade_rows.json`, and the report at the end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger

from trl_vade.data.row_views import describe_row, key_text, row_labels
from trl_vade.files import save_whole
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, SHOWN, Run
from trl_vade.selection.report.writing import write_report

from .callbacks import HarmlessCallback, harmless
from .presets import setting
from .run_facts import describe_run, run_names

logger = get_logger(__name__)

MOST_STRATA = 100  # labels; more are names of rows, and no tasks
NAMED = 50  # rows at each end of the pass rates that have their id and question in `vade_rows.json`


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
        """Write `vade_run.json`."""
        content = json.dumps(describe_run(self._trainer), indent=2, ensure_ascii=False, default=str)
        save_whole(Path(args.output_dir, RUN_FILE), f"{content}\n".encode())
        self.about = json.loads(content)  # the page is as if it was made of the file

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
        """Write `vade_rows.json` and return its content."""
        selection = self._trainer.selection
        posterior, keys = selection.sampler.posterior, selection.sample_keys
        seen, means = np.flatnonzero(posterior.visits > 0), posterior.posterior_mean
        # Ties are in the order of the keys as texts, as in `trl-vade posterior show`.
        order = seen[np.lexsort((keys[seen].view(np.uint64), means[seen]))].tolist()
        hardest, easiest = order[:NAMED], order[max(len(order) - NAMED, NAMED) :][::-1]
        shown = {*hardest[:SHOWN], *easiest[:SHOWN]}
        tasks = _tasks(self._trainer, posterior.visited)
        task_of = {row: {"task": name} for name, rows in tasks.items() for row in rows}
        kept = {
            **{"hardest": hardest, "easiest": easiest, "tasks": tasks},
            "rows": {
                str(row): {
                    **{"key": key_text(int(keys[row])), "pass_rate": float(means[row])},
                    **{"visits": int(posterior.visits[row]), **task_of.get(row, {})},
                    **describe_row(selection.dataset, row, picture=row in shown),
                }
                for row in sorted({*hardest, *easiest})
            },
        }
        save_whole(
            Path(self._trainer.args.output_dir, ROWS_FILE), json.dumps(kept, indent=1, ensure_ascii=False).encode()
        )
        return kept


def live_run(trainer: Any) -> Run | None:
    """Return the run of `trainer` so far, as `record.read_run` would.

    None if no generation batch was scored, or if the log of the choices lacks its beginning.
    """
    if trainer.selection is None or not trainer.selection.sampler.posterior.step:
        return None  # an existing log would be an earlier run's
    log = trainer.selection.feedback.log
    lines = log.read() if log.position.lines else []  # else it is the log of an earlier run
    if all("warm_start" in line for line in lines) or lines[0]["step"] != 1:
        return None  # the run was resumed in another output directory, or with other rows
    name = Path(trainer.args.output_dir).absolute().name
    return Run(lines, trainer.state.log_history, run_names(trainer), name=name)


def _tasks(trainer: Any, rows: Any) -> dict[str, list[int]]:
    """Return which of the `rows` have which label in the column of the settings, or in `task`, `level` and `kind`."""
    dataset, column = trainer.selection.dataset, setting(trainer.args, "stratify_by")
    usual = ("task", "level", "kind") if trainer.args.vade_variants else ("task", "level")
    columns = [column] if column else [name for name in usual if name in dataset.column_names]
    tasks: dict[str, list[int]] = {}
    for row, *labels in zip(rows.tolist(), *(row_labels(dataset, name, rows) for name in columns), strict=True):
        tasks.setdefault(" ".join(map(str, labels)), []).append(row)
    return tasks if columns and len(tasks) <= MOST_STRATA else {}
