"""A finished (or interrupted) run, as the files in its output directory tell it."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import SnapshotCorruptError, VADEError
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.snapshot import Snapshot, load_snapshot

from ..log import SelectionLog

TRAINER_STATE_FILE = "trainer_state.json"


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run, as its files tell it."""

    snapshot: Snapshot
    lines: list[dict[str, Any]]  # of the selection log
    history: list[dict[str, Any]]  # the Trainer's log history

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
    def validation(self) -> list[dict[str, float]]:
        """`step`, `rollouts` (spent until then) and `score` (mean success or total reward) of each evaluation."""
        name = self.snapshot.metadata["success_reward"]
        key = f"eval_rewards/{name}/mean" if name else "eval_reward"
        scored = [entry for entry in self.history if entry.get(key) is not None and not math.isnan(entry[key])]
        return [
            {"step": entry["step"], "rollouts": self.rollouts_before(entry["step"]), "score": entry[key]}
            for entry in scored
        ]

    @property
    def effective_gradient_ratio(self) -> NDArray[np.float64]:
        """(S,) of each of the selections; NaN where no completion was scored."""
        ratios = [line["effective_gradient_ratio"] for line in self.selections]
        return np.array([np.nan if ratio is None else ratio for ratio in ratios], dtype=np.float64)

    @property
    def refills(self) -> int:
        """Refills of generation batches, by dynamic sampling."""
        return sum("refill" in line for line in self.selections)

    def rollouts_before(self, global_step: int) -> int:
        """Rollouts spent on training when `global_step` optimiser steps were finished."""
        return max((line["rollouts"] for line in self.selections if line["global_step"] < global_step), default=0)

    def posterior_at(self, step: int) -> BetaPosterior:
        """The posterior after step `step`, replayed from the selection log: a line is one.

        A step is a generation batch, a refill, or (the first) a warm start.
        """
        saved = self.snapshot.sampler_state["posterior"]
        posterior = BetaPosterior(saved["num_samples"], **{name: saved[name] for name in BetaPosterior(1).decays})
        restored = {line["restored_to"] for line in self.lines[:step] if "restored_to" in line}
        states = {}  # of these steps
        for line in self.lines[:step]:
            if posterior.step in restored:
                states[posterior.step] = posterior.state_dict()
            if "restored_to" in line:  # the end of a reward outage put these counts back
                posterior.load_state_dict({**states[line["restored_to"]], "step": posterior.step})
            rows = np.array(line["sample_index"], dtype=np.int64)
            posterior.observe(rows, line["successes"], line["trials"], line.get("mixed"))
        return posterior


def read_run(output_dir: str | os.PathLike[str]) -> Run:
    """Read a run from its output directory.

    Raises:
        SnapshotError: if the posterior is missing or broken, or the selection log or the trainer state is damaged.
        VADEError: if there is no trainer state (`trainer.save_state()` writes it) or no selection log, or the log
            lacks the beginning of the run.
    """
    snapshot = load_snapshot(output_dir)
    state_file = Path(output_dir) / TRAINER_STATE_FILE
    lines = SelectionLog(output_dir).read()
    if not state_file.exists() or all("warm_start" in line for line in lines):
        missing = SelectionLog(output_dir).path if state_file.exists() else state_file
        raise VADEError(
            f"{missing} is missing or empty, so there is nothing to report. Call trainer.save_state() after "
            "trainer.train(), and give the report the output_dir of that run."
        )
    if lines[0]["step"] != 1:
        raise VADEError(
            f"{SelectionLog(output_dir).path} begins at generation batch {lines[0]['step']}: the run was resumed "
            "from a checkpoint of another output_dir (put that directory's lines before it, up to this batch), or "
            "with vade_on_mismatch='join' (the earlier lines, in a file beside it, are about other rows)."
        )
    return Run(snapshot, lines, _read_history(state_file))


def _read_history(state_file: Path) -> list[dict[str, Any]]:
    try:
        history = json.loads(state_file.read_text(encoding="utf-8"))["log_history"]
        if not all(isinstance(entry, dict) for entry in history):
            raise TypeError("an entry of log_history is no object")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"{state_file} is damaged ({type(error).__name__}: {error}), so the rewards and the validation scores of "
            "the run are not known. Put the trainer_state.json of the run's newest checkpoint in its place, which has "
            'them up to its step, or {"log_history": []} for a report without them.'
        ) from error
    return list(history)
