"""The wall time of optimiser steps."""

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback


class StepTimer(TrainerCallback):
    """Callback that adds the seconds of each optimiser step, first micro-batch to update, to `seconds()["step"]`."""

    def __init__(self, seconds: Callable[[], Any]):
        self._seconds = seconds  # a function, because a resume replaces the dictionary
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the time since `on_step_begin`."""
        self._seconds()["step"] += time.perf_counter() - self._start
