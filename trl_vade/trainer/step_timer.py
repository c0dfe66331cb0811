"""The wall time of optimiser steps."""

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback


class StepTimer(TrainerCallback):
    """Callback that adds the seconds of each optimiser step, first micro-batch to update, to `seconds()["step"]`.

    All of `seconds()` go into the metrics as `vade/<phase>_seconds_total`, of which a log takes the last.
    """

    def __init__(self, seconds: Callable[[], dict[str, float]], metrics: dict[str, list[float]]):
        self._seconds, self._metrics = seconds, metrics  # a function, because a resume replaces the dictionary
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the time since `on_step_begin`."""
        totals = self._seconds()
        totals["step"] += time.perf_counter() - self._start
        for phase, total in totals.items():
            self._metrics[f"vade/{phase}_seconds_total"] = [total]
