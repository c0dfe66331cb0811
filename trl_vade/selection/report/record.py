"""A run, as the files in its output directory tell it: finished, still going on, or killed.

All figures come from the selection log and from the Trainer's log history. `vade_run.json` and `vade_rows.json` add
names, settings and questions.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import SnapshotCorruptError, SnapshotNotFoundError, VADEError

from ..log import SelectionLog
from .validation import validations

TRAINER_STATE_FILE = "trainer_state.json"
RUN_FILE = "vade_run.json"  # command, settings, versions
ROWS_FILE = "vade_rows.json"  # the rows that a report shows
MOST_BYTES = 2**25  # of these files; `trainer.report` writes a few hundred kB
SHOWN = 6  # rows at each end of the pass rates that the page shows
PHASES = ("selection", "generation", "step")
NOT_KNOWN = "not known"  # the label of a row whose own label is not kept
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run as its files tell it. The lines may go on beyond the history."""

    lines: list[dict[str, Any]]  # of the selection log
    history: list[dict[str, Any]]  # the Trainer's log history
    about: Mapping[str, Any] = field(default_factory=dict)  # `vade_run.json`
    rows: Mapping[str, Any] = field(default_factory=dict)  # `vade_rows.json`
    name: str = ""  # of its folder

    @property
    def selections(self) -> list[dict[str, Any]]:
        """The lines of generation batches, and of refills of them; a warm start is none."""
        return [line for line in self.lines if "warm_start" not in line]

    @property
    def batches(self) -> list[dict[str, Any]]:
        """The lines of generation batches, without refills."""
        return [line for line in self.selections if "refill" not in line]

    @property
    def title(self) -> str:
        """Sampler, generation batches, rows and refills."""
        batches, refills = self.batches, len(self.selections) - len(self.batches)
        sampler = f"{self.about['sampler']} sampler: " if "sampler" in self.about else ""
        rows = len(batches[-1]["sample_index"])
        return f"{sampler}{len(batches)} generation batches of {rows} rows{f', {refills} refills' if refills else ''}"

    @property
    def num_generations(self) -> int:
        """G, the completions of a group."""
        return round(max(max(line["trials"]) for line in self.selections)) or 1

    @property
    def has_spreads(self) -> bool:
        """Whether the belief is about the spread of the rewards of each row, and not about its pass rate."""
        return any("vade/mean_spread" in entry for entry in self.history)

    @property
    def validation(self) -> list[dict[str, Any]]:
        """The evaluations: `step`, `rollouts` (spent until then), `score` and `standard_error`; see `validations`."""
        found = validations(self.history, self.about.get("success_reward"), self.about.get("validation_answers"))
        return [{**each, "rollouts": self.rollouts_before(each["step"])} for each in found]

    @property
    def effective_gradient_ratio(self) -> NDArray[np.float64]:
        """(S,) of each of the selections."""
        return column(self.selections, "effective_gradient_ratio")

    @property
    def seconds(self) -> tuple[dict[str, float], int]:
        """Wall time by phase, and the optimiser step until which it was logged. `update` is the rest of the steps."""
        entry = next((each for each in reversed(self.history) if "vade/step_seconds_total" in each), {"step": 0})
        selection, generation, step = (float(entry.get(f"vade/{phase}_seconds_total", 0.0)) for phase in PHASES)
        validation = sum(each.get("eval_runtime", 0.0) for each in self.history)
        phases = {"selection": selection, "generation": generation, "update": max(step - selection - generation, 0.0)}
        return phases | {"validation": validation}, entry["step"]

    @property
    def strata(self) -> NDArray[Any] | None:
        """(N,) the label of each row that was chosen, `NOT_KNOWN` for others; None if the trainer kept no labels."""
        kept = self.rows.get("tasks")
        if not kept:
            return None
        labels = np.full(max(max(line["sample_index"]) for line in self.selections) + 1, NOT_KNOWN, dtype=object)
        for name, part in kept.items():
            labels[[row for row in part["chosen"] if row < len(labels)]] = name
        return labels

    def rollouts_before(self, global_step: int) -> int:
        """Rollouts spent on training when `global_step` optimiser steps were finished."""
        return max((line["rollouts"] for line in self.selections if line["global_step"] < global_step), default=0)


def column(entries: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    """Return a figure of each entry, NaN for None."""
    return np.array([np.nan if entry[name] is None else entry[name] for entry in entries], dtype=np.float64)


def pass_rates(lines: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Return the pass rate of each chosen group of the lines; NaN of one without a scored completion."""
    successes, trials = (np.concatenate([line[name] for line in lines]) for name in ("successes", "trials"))
    return np.divide(successes, trials, out=np.full(len(trials), np.nan), where=trials > 0)


def read_run(output_dir: str | os.PathLike[str]) -> Run:
    """Read a run from its output directory, also while it goes on or after it was killed.

    The trainer state is the newest that the folder or one of its checkpoints has. Without any, the run has no rewards,
    no validation scores and no times.

    Raises:
        VADEError: there is no selection log, it lacks the beginning of the run, or it or the trainer state is damaged.
    """
    folder, log = Path(output_dir), SelectionLog(output_dir)
    if not folder.is_dir():
        raise SnapshotNotFoundError(f"{folder} is not a folder here. Give the output_dir of a run.")
    lines = log.read()
    if all("warm_start" in line for line in lines):
        raise SnapshotNotFoundError(
            f"{log.path} is missing or empty, so there is nothing to report. Give the output_dir of a run."
        )
    if lines[0]["step"] != 1:
        raise VADEError(
            f"{log.path} begins at generation batch {lines[0]['step']}: the run was resumed from a checkpoint of "
            "another output_dir. Put that directory's lines before it, up to this batch."
        )
    kept = (read_kept(folder / name) for name in (RUN_FILE, ROWS_FILE))
    return Run(lines, _history(folder), *kept, name=folder.absolute().name)


def read_kept(path: Path) -> dict[str, Any]:
    """Read `vade_run.json` or `vade_rows.json`; empty if it is missing, or damaged (a warning is logged)."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(kept, dict):
            raise TypeError(f"it holds a {type(kept).__name__} and no object")
        return kept
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        logger.warning(f"{path} cannot be read ({type(error).__name__}: {error}). The report goes without it.")
        return {}


def _history(folder: Path) -> list[dict[str, Any]]:
    """Return the log history of the highest optimiser step, in `folder` or in a checkpoint.

    A checkpoint may be half written or half deleted at this moment. If none can be read, the error is the folder's.
    """
    found = []
    for path in folder.glob(f"*checkpoint*/{TRAINER_STATE_FILE}"):
        with suppress(SnapshotCorruptError, OSError):
            found.append(_read_history(path))
    try:
        found.append(_read_history(folder / TRAINER_STATE_FILE))
    except FileNotFoundError:
        if not found:
            logger.warning(f"{folder} has no {TRAINER_STATE_FILE}, so the report has no rewards, scores and times.")
    except SnapshotCorruptError:
        if not found:
            raise
    return max(found, key=lambda each: each[0], default=(0, []))[1]


def _read_history(path: Path) -> tuple[int, list[dict[str, Any]]]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        history = list(state["log_history"])
        if not all(isinstance(entry, dict) for entry in history):
            raise TypeError("an entry of log_history is no object")
        return int(state.get("global_step", 0)), history
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"{path} is damaged ({type(error).__name__}: {error}), and no checkpoint of the run has a whole one. The "
            'rewards and validation scores are not known. Write {"log_history": []} into it for a report without them.'
        ) from error
