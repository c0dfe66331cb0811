"""A run, as the files in its output directory tell it: finished, still going on, or killed."""

import json
import logging
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.checkpoints import TRAINER_STATE_FILE, complete_checkpoints
from trl_vade.errors import SnapshotNotFoundError

from ..log import SelectionLog

RUN_FILE = "vade_run.json"  # command, settings, versions
ROWS_FILE = "vade_rows.json"  # the rows that a report shows
SHOWN = 6  # rows at each end of the pass rates that the page shows
RUNTIME = re.compile(r"eval_(?:(.+)_)?runtime")  # TRL 1.16 names the scores of all data sets alike

logger = logging.getLogger(__name__)


@dataclass
class Run:
    """A run as its files tell it; the lines may go on beyond the history."""

    lines: list[dict[str, Any]]  # of the selection log
    history: list[dict[str, Any]]  # the Trainer's log history
    about: Mapping[str, Any] = field(default_factory=dict)  # `vade_run.json`
    rows: Mapping[str, Any] = field(default_factory=dict)  # `vade_rows.json`
    name: str = ""  # of its folder

    def __post_init__(self) -> None:
        # TRL logs None where no completion got a score.
        self.history = [{name: x for name, x in entry.items() if x is not None} for entry in self.history]

    @property
    def selections(self) -> list[dict[str, Any]]:
        """The lines of generation batches, and of refills of them; an initial posterior is none."""
        return [line for line in self.lines if not line.keys() & {"warm_start", "initial"}]

    @property
    def is_whole(self) -> bool:
        """Whether a generation batch was scored, and the lines begin with the run."""
        return bool(self.selections) and self.lines[0]["step"] == 1

    @property
    def title(self) -> str:
        """Sampler, generation batches and rows."""
        batches = [line for line in self.selections if "refill" not in line]
        rows = len(batches[-1]["sample_index"])
        return f"{self.about.get('sampler', 'unknown')} sampler: {len(batches)} generation batches of {rows} rows"

    @property
    def has_spreads(self) -> bool:
        """Whether the belief is about the spread of the rewards of each row, and not about its pass rate."""
        return any("vade/mean_spread" in entry for entry in self.history)

    @property
    def seconds(self) -> dict[str, Any]:
        """Wall time by phase, and the optimiser step until which it was logged. `update` is the rest of the steps."""
        entry = next((each for each in reversed(self.history) if "vade/step_seconds_total" in each), {"step": 0})
        phases = {name: entry.get(f"vade/{name}_seconds_total", 0.0) for name in ("selection", "generation", "step")}
        phases["update"] = phases.pop("step") - phases["selection"] - phases["generation"]
        phases["validation"] = sum(x for each in self.history for name, x in each.items() if RUNTIME.fullmatch(name))
        return {"seconds": phases, "seconds_until_step": entry["step"]}

    def validation(self, data_set: str | None = None) -> list[dict[str, Any]]:
        """Return the evaluations of a data set: `step`, `rollouts` until then, `score` and `standard_error`.

        The score is the mean of the success reward, or of the total reward where there is none. `data_set` is a name
        as in `data_set_of`; None is the first one that was evaluated.
        """
        success, answers = self.about.get("success_reward"), self.about.get("validation_answers")
        key = f"eval_rewards/{success}/mean" if success else "eval_reward"
        scored = [entry for entry in self.history if not math.isnan(entry.get(key, math.nan))]
        name = data_set_of(scored[0]) if scored and data_set is None else data_set
        count = answers.get(name or "") if isinstance(answers, Mapping) else answers
        return [
            {
                "step": entry["step"],
                "rollouts": max((x["rollouts"] for x in self.lines if x["global_step"] < entry["step"]), default=0),
                "score": entry[key],
                "standard_error": standard_error(entry[key], count),
            }
            for entry in scored
            if data_set_of(entry) == name
        ]


def data_set_of(entry: Mapping[str, Any]) -> str:
    """Return the name of the data set of a log entry, as in a dictionary `eval_dataset`; empty without one."""
    return next((found[1] or "" for found in map(RUNTIME.fullmatch, entry) if found), "")


def standard_error(score: float, answers: int | None) -> float | None:
    """Return the standard error of a mean over so many answers, at most too large; None if it is not known."""
    return math.sqrt(score * (1 - score) / answers) if answers and 0 <= score <= 1 else None


def column(entries: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    """Return a figure of each entry, NaN for None."""
    return np.array([entry[name] for entry in entries], dtype=np.float64)


def pass_rates(lines: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Return the pass rate of each chosen group of the lines; NaN of one without a scored completion."""
    successes, trials = (np.concatenate([line[name] for line in lines]) for name in ("successes", "trials"))
    return np.divide(successes, trials, out=np.full(len(trials), np.nan), where=trials > 0)


def read_run(output_dir: str | os.PathLike[str]) -> Run:
    """Read a run from its output directory, also while it goes on or after it was killed.

    A log that is missing or lacks the beginning is a `SnapshotNotFoundError`, a damaged one a `SnapshotCorruptError`.
    """
    folder, log = Path(output_dir), SelectionLog(output_dir)
    if not folder.is_dir():
        raise SnapshotNotFoundError(f"There is no folder {folder}. Give the output_dir of a run.")
    run = Run(log.read(), [])
    if not run.is_whole:
        raise SnapshotNotFoundError(
            f"{log.path} is missing or empty, or begins later than the run, which was resumed from a checkpoint of "
            "another folder. Give the output_dir of a run, with the lines of its log from the first on."
        )
    kept = (read_kept(folder / name) for name in (RUN_FILE, ROWS_FILE))
    return Run(run.lines, _history(folder), *kept, name=folder.absolute().name)


def read_kept(path: Path) -> dict[str, Any]:
    """Read `vade_run.json` or `vade_rows.json`; empty if it is missing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _history(folder: Path) -> list[dict[str, Any]]:
    """Return the log history of the newest whole checkpoint, or of a higher step that none of these has left."""
    found, older = [], complete_checkpoints(folder)[:-1]
    for path in [folder / TRAINER_STATE_FILE, *folder.glob(f"*checkpoint*/{TRAINER_STATE_FILE}")]:
        if path.parent in older:
            continue
        with suppress(OSError, ValueError, LookupError):
            state = json.loads(path.read_text(encoding="utf-8"))
            found.append((state["global_step"], state["log_history"]))
    if not found:
        logger.warning(f"{folder} has no whole {TRAINER_STATE_FILE}: the report has no rewards, scores and times.")
    return max(found, key=lambda each: each[0], default=(0, []))[1]
