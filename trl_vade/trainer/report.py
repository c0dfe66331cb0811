"""The files that a run leaves for people: `vade_run.json`, `vade_rows.json`, and the report at the end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from numpy.typing import NDArray

from trl_vade.data.row_views import describe_row, key_text
from trl_vade.errors import VADEError
from trl_vade.files import save_whole
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, SHOWN, Run, read_kept
from trl_vade.selection.report.writing import write_report

from .harmless import HarmlessCallback, harmless
from .presets import setting
from .run_description import describe_run, encode_run, run_names

logger = get_logger(__name__)

MOST_STRATA = 24  # the picture has no more colours
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
        self._described: dict[int, dict[str, str]] = {}  # with their pictures, which take milliseconds each
        self._tasks: list[str] | None = None

    @property
    def folder(self) -> Path:
        """The output directory."""
        return Path(self._trainer.args.output_dir)

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Write `vade_run.json`."""
        resumed, selection = state.global_step > 0, self._trainer.selection
        content = encode_run(describe_run(self._trainer, read_kept(self.folder / RUN_FILE) if resumed else {}))
        save_whole(self.folder / RUN_FILE, content)
        self.about = json.loads(content)  # the page must not show what the file hides
        if selection is not None:
            self._tasks, self._described = _tasks(self._trainer), {}

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
            write_report(self.folder, replace(run, about=self.about, rows=self._save_rows()))

    def _save_rows(self) -> dict[str, Any]:
        """Write `vade_rows.json` and return its content."""
        selection = self._trainer.selection
        posterior, keys = selection.sampler.posterior, selection.sample_keys[0]
        hardest, easiest = both_ends(posterior, keys)
        seen, means = {*hardest[:SHOWN], *easiest[:SHOWN]}, posterior.posterior_mean.tolist()
        for row in seen - self._described.keys():
            self._described[row] = describe_row(selection.dataset, row)
        rows = {
            row: {"key": key_text(int(keys[row])), "pass_rate": means[row], "visits": int(posterior.visits[row])}
            | ({"task": self._tasks[row]} if self._tasks else {})
            | (self._described[row] if row in seen else describe_row(selection.dataset, row, picture=False))
            for row in sorted({*hardest, *easiest})
        }
        kept = {
            **{"hardest": hardest, "easiest": easiest},
            "tasks": self._chosen_of_tasks(posterior.visited.tolist()),
            "rows": {str(row): about for row, about in rows.items()},
        }
        save_whole(self.folder / ROWS_FILE, json.dumps(kept, indent=1, ensure_ascii=False).encode())
        return kept

    def _chosen_of_tasks(self, visited: list[int]) -> dict[str, Any]:
        """Return for each task its number of rows, and which of them were chosen."""
        tasks = self._tasks or []
        found = {name: {"rows": tasks.count(name), "chosen": []} for name in sorted({*tasks})}
        for row in visited if tasks else ():
            found[tasks[row]]["chosen"].append(row)
        return found


def both_ends(posterior: BetaPosterior, keys: NDArray[np.int64], count: int = NAMED) -> tuple[list[int], list[int]]:
    """Return the `count` rows with the lowest pass rates and those with the highest, none twice.

    Ties are in the order of the `keys`, (N,), as 16 hexadecimal digits: that of `trl-vade posterior show`.
    """
    seen = np.flatnonzero(posterior.visits > 0)
    order = seen[np.lexsort((keys[seen].view(np.uint64), posterior.posterior_mean[seen]))].tolist()
    return order[:count], order[max(len(order) - count, count) :][::-1]


def live_run(trainer: Any) -> Run | None:
    """Return the run of `trainer` so far, as `record.read_run` would.

    None if no generation batch was scored, if the log of the choices is damaged (a warning is logged), or if it lacks
    its beginning.
    """
    if trainer.selection is None or not trainer.selection.sampler.posterior.step:
        return None  # an existing log would be an earlier run's
    try:
        lines = trainer.selection.feedback.log.so_far()
    except (VADEError, OSError) as error:
        logger.warning(f"The run so far cannot be described: {error}")
        return None
    if all("warm_start" in line for line in lines) or lines[0]["step"] != 1:
        return None  # the run was resumed in another output directory, or with other rows
    name = Path(trainer.args.output_dir).absolute().name
    return Run(lines, trainer.state.log_history, run_names(trainer), name=name)


def _tasks(trainer: Any) -> list[str] | None:
    """Return a label of each row, from the column that the settings name or from `task`, `level` and `kind`."""
    rows = trainer.train_dataset.with_format(None)
    column = setting(trainer.args, "stratify_by")
    usual = ("task", "level", "kind") if trainer.args.vade_variants else ("task", "level")
    columns = [column] if column else [name for name in usual if name in rows.column_names]
    labels = [" ".join(map(str, values)) for values in zip(*(rows[name][:] for name in columns), strict=True)]
    return labels if 0 < len({*labels}) <= MOST_STRATA else None
