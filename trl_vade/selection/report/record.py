"""A run, as the files in its output directory tell it: finished, still going on, or killed."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import SnapshotCorruptError, SnapshotError, SnapshotNotFoundError, VADEError
from trl_vade.samplers.information import SPREAD_GAIN
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.priors import even_draw_ratio
from trl_vade.samplers.snapshot import Snapshot, load_snapshot

from ..log import SelectionLog
from .validation import validations

TRAINER_STATE_FILE = "trainer_state.json"
RUN_FILE = "vade_run.json"  # command, settings, versions
ROWS_FILE = "vade_rows.json"  # the rows that a report shows
MOST_BYTES = 2**25  # of these files; `trainer.report` writes a few hundred kB
EVEN_DRAWS = 25  # points of the curve of an even draw
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A run as its files tell it. The lines may go on beyond the snapshot and the history."""

    snapshot: Snapshot
    lines: list[dict[str, Any]]  # of the selection log
    history: list[dict[str, Any]]  # the Trainer's log history
    about: dict[str, Any] = field(default_factory=dict)  # `vade_run.json`
    rows: dict[str, Any] = field(default_factory=dict)  # `vade_rows.json`
    name: str = ""  # of its folder

    @property
    def selections(self) -> list[dict[str, Any]]:
        """The lines of generation batches, and of refills of them; a warm start is none."""
        return [line for line in self.lines if "warm_start" not in line]

    @property
    def sampler(self) -> str:
        """As in `vade_sampler`: thompson, greedy or uniform."""
        state = self.snapshot.sampler_state
        return "greedy" if state["settings"].get("greedy") else str(state["kind"])

    @property
    def has_spreads(self) -> bool:
        """Whether the belief is about the spread of the rewards of each row, and not about its pass rate."""
        settings, facts = self.snapshot.sampler_state["settings"], self.snapshot.metadata
        return SPREAD_GAIN in (settings.get("gain"), facts.get("success_threshold"))

    @property
    def validation(self) -> list[dict[str, Any]]:
        """The evaluations: `step`, `rollouts` (spent until then), `score` and `standard_error`; see `validations`.

        The error follows from the number of answers in `vade_run.json`. Without that it is None.
        """
        found = validations(
            self.history, self.snapshot.metadata["success_reward"], self.about.get("validation_answers")
        )
        return [{**each, "rollouts": self.rollouts_before(each["step"])} for each in found]

    @property
    def effective_gradient_ratio(self) -> NDArray[np.float64]:
        """(S,) of each of the selections."""
        ratios = [line["effective_gradient_ratio"] for line in self.selections]
        return np.array([np.nan if ratio is None else ratio for ratio in ratios], dtype=np.float64)

    @property
    def refills(self) -> int:
        """Refills of generation batches, by dynamic sampling."""
        return sum("refill" in line for line in self.selections)

    @property
    def trained(self) -> list[tuple[int, int]]:
        """Optimiser step and completions trained on until then, of each entry of the history that has them."""
        key = "vade/trained_completions"
        return [(entry["step"], int(entry[key])) for entry in self.history if key in entry]

    @property
    def num_generations(self) -> int:
        """G, the completions of a group."""
        group = self.snapshot.metadata.get("num_generations")
        return int(group or round(max(max(line["trials"]) for line in self.selections)))

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time by phase, until the newest snapshot. `update` is the rest of the steps."""
        seconds = self.snapshot.metadata["run"]["seconds"]
        rest = seconds["step"] - seconds["selection"] - seconds["generation"]
        return {
            "selection": seconds["selection"],
            "generation": seconds["generation"],
            "update": max(rest, 0.0),
            "validation": sum(entry.get("eval_runtime", 0.0) for entry in self.history),
        }

    def rollouts_before(self, global_step: int) -> int:
        """Rollouts spent on training when `global_step` optimiser steps were finished."""
        return max((line["rollouts"] for line in self.selections if line["global_step"] < global_step), default=0)

    def posterior_at(self, step: int) -> BetaPosterior:
        """Return the posterior after line `step` of the selection log, as `posteriors` replays it."""
        return next(self.posteriors([step]))

    def posteriors(self, steps: Iterable[int]) -> Iterator[BetaPosterior]:
        """Replay the selection log and yield the posterior, one changing object, after each of the ascending `steps`.

        A line is a generation batch, a refill, or (the first) a warm start.
        """
        saved = self.snapshot.sampler_state["posterior"]
        posterior = BetaPosterior(saved["num_samples"], **{name: saved[name] for name in BetaPosterior(1).decays})
        restored = {line["restored_to"] for line in self.lines if "restored_to" in line}
        states = {}  # of these steps
        done = 0
        for step in steps:
            for line in self.lines[done:step]:
                if posterior.step in restored:
                    states[posterior.step] = posterior.state_dict()
                if "restored_to" in line:  # the end of a reward outage put these counts back
                    posterior.load_state_dict({**states[line["restored_to"]], "step": posterior.step})
                rows = np.array(line["sample_index"], dtype=np.int64)
                posterior.observe(rows, line["successes"], line["trials"], line.get("mixed"))
            done = max(done, step)
            yield posterior

    def even_draw(self) -> list[tuple[int, float]]:
        """Return the step and the `even_draw_ratio` of up to `EVEN_DRAWS` lines of the selection log."""
        ends = np.unique(np.linspace(1, len(self.lines), EVEN_DRAWS, dtype=int)).tolist()
        beliefs = self.posteriors(ends)
        ratios = [even_draw_ratio(each, self.num_generations, spreads=self.has_spreads) for each in beliefs]
        return [(self.lines[end - 1]["step"], ratio) for end, ratio in zip(ends, ratios, strict=True)]


def read_run(output_dir: str | os.PathLike[str]) -> Run:
    """Read a run from its output directory, also while it goes on or after it was killed.

    Posterior and trainer state are the newest that the folder or one of its checkpoints has. Without any trainer state
    the run has no rewards and no validation scores.

    Raises:
        SnapshotError: there is no posterior yet, or it or the selection log or the trainer state is damaged.
        VADEError: there is no selection log, or it lacks the beginning of the run.
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
    try:
        snapshot = _newest(folder, _read_snapshot)
    except SnapshotNotFoundError as error:
        raise SnapshotNotFoundError(
            f"{error} No checkpoint in {folder} has one either. The first checkpoint (save_steps) and "
            "trainer.save_model() write it."
        ) from error
    try:
        history = _newest(folder, _read_history)
    except FileNotFoundError:
        logger.warning(f"{folder} has no {TRAINER_STATE_FILE}, so the report has no rewards and no validation scores.")
        history = []
    kept = (read_kept(folder / name) for name in (RUN_FILE, ROWS_FILE))
    return Run(snapshot, lines, history, *kept, name=folder.absolute().name)


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


def _newest(folder: Path, read: Callable[[Path], tuple[int, Any]]) -> Any:
    """Return what `read` finds at the highest optimiser step: in `folder` or in its newest readable checkpoint.

    A checkpoint may be half written or half deleted at this moment. If none can be read, the error is the folder's.
    """
    numbers = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    checkpoints = sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: -int(numbers[path]))
    found = []
    for place in [*checkpoints, folder / "last-checkpoint"]:  # the latter comes from the Hub
        with suppress(SnapshotError, OSError):
            found.append(read(place))
            break
    try:
        found.append(read(folder))
    except (SnapshotError, OSError):
        if not found:
            raise
    return max(found, key=lambda each: each[0])[1]


def _read_snapshot(folder: Path) -> tuple[int, Snapshot]:
    snapshot = load_snapshot(folder)
    return snapshot.metadata["run"]["global_step"], snapshot


def _read_history(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    path = folder / TRAINER_STATE_FILE
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
