"""`vade_selection.jsonl`: which rows were chosen, and what came of it; one line a generation batch.

Replaying its lines through a `BetaPosterior` gives the posterior at any step, so a run can be audited and drawn from
its files alone.
"""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .durable import save_whole
from .feedback import GroupOutcomes

SELECTION_LOG_FILE = "vade_selection.jsonl"


class SelectionLog:
    """Appends to, shortens and reads one selection log.

    A line holds `step` (generation batches from 1: the posterior's steps), `global_step` (optimiser steps finished
    when the batch was scored), `rollouts` (so far), `predicted_effective_ratio`, `effective_gradient_ratio` (null
    where no completion was scored), and of each group `sample_index`, `successes` and `trials`.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.path = Path(directory) / SELECTION_LOG_FILE

    def append(self, outcomes: GroupOutcomes, *, step: int, **numbers: float) -> None:
        """Write one generation batch down. Step 1 starts the file anew: an older run's lines are not this run's."""
        ratio = outcomes.effective_gradient_ratio
        line = {
            "step": step,
            **numbers,
            "effective_gradient_ratio": None if math.isnan(ratio) else ratio,
            "sample_index": outcomes.sample_index.tolist(),
            "successes": outcomes.successes.tolist(),
            "trials": outcomes.trials.tolist(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w" if step == 1 else "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def truncate(self, last_step: int) -> None:
        """Drop the lines after `last_step`: a run resumed from a checkpoint goes through them again."""
        if not self.path.exists():
            return
        kept = [line for line in self._lines() if line["step"] <= last_step]
        save_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def read(self) -> list[dict[str, Any]]:
        """All lines, oldest first; an empty list where there is no log."""
        return list(self._lines()) if self.path.exists() else []

    def _lines(self) -> Iterator[dict[str, Any]]:
        with open(self.path, encoding="utf-8") as file:
            for text in file:
                try:
                    yield json.loads(text)
                except json.JSONDecodeError:
                    return  # the process died while it wrote this line, which therefore is the last
