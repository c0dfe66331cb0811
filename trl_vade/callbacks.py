"""What rides on the Trainer's events: the posterior's mark in the trainer state, and the wall time of the steps."""

import time
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState


class PosteriorState(TrainerCallback, ExportableState):
    """Puts the step and the digest of the saved posterior into `trainer_state.json`.

    The file holds the arrays (a million floats in `trainer_state.json` are 59 MB and 4 s); the mark lets a resume know
    that the file and the trainer state belong together. It holds no reference to the trainer, because transformers
    replaces the object under `restore_callback_states_from_checkpoint=True`.
    """

    def __init__(self, file: str = ""):
        self.file = file
        self.step = 0
        self.digest = ""

    def state(self) -> dict[str, Any]:
        return {"args": {"file": self.file}, "attributes": {"step": self.step, "digest": self.digest}}


class StepTimer(TrainerCallback):
    """Adds the wall time of each optimiser step, from its first micro-batch to its update, to `seconds["step"]`."""

    def __init__(self, seconds: Any):
        self._seconds = seconds  # a function that returns the dictionary: a resume replaces the dictionary
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._seconds()["step"] += time.perf_counter() - self._start
