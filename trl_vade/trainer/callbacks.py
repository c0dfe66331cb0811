"""Callbacks of the Trainer: one that may fail, the time of steps, what was trained on, a checkpoint on a signal."""

import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import gather
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from trl_vade.errors import ConfigurationError

logger = get_logger(__name__)

Kind = TypeVar("Kind", bound=TrainerCallback)


def callback_of(trainer: Any, kind: type[Kind]) -> Kind | None:
    """Return the callback of this class of a trainer, or None if it was removed."""
    return next((each for each in trainer.callback_handler.callbacks if isinstance(each, kind)), None)


class HarmlessCallback(TrainerCallback):
    """Callback that its first error in a method decorated by `harmless` switches off."""

    active = True
    absence: str  # the sentence of the warning, such as "The console is off"


def harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """Log an error of a method of a `HarmlessCallback`, and do nothing from then on."""

    @functools.wraps(method)
    def guarded(callback: HarmlessCallback, *positional: Any, **named: Any) -> Any:
        if not callback.active:
            return None
        try:
            return method(callback, *positional, **named)
        except Exception as error:
            callback.active = False
            logger.warning(f"{callback.absence} ({type(error).__name__}: {error}). The training is not affected.")

    return guarded


class StepTimer(TrainerCallback):
    """Callback that adds the seconds of each optimiser step to those of the selection, and logs all totals."""

    def __init__(self, selection: Callable[[], Any], metrics: dict[str, list[float]]):
        self._selection, self._metrics = selection, metrics  # a function, because a run may have another, or None
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the time since `on_step_begin`."""
        if selection := self._selection():
            selection.feedback.seconds["step"] += time.perf_counter() - self._start
            for phase, total in selection.feedback.seconds.items():
                self._metrics[f"vade/{phase}_seconds_total"] = [total]


class TrainedCounts(TrainerCallback, ExportableState):
    """Callback that counts the completions and tokens trained on, on all processes. Checkpoints keep the counts.

    If they are `required`, a step that does not count is an error: a subclass replaces the loss.
    """

    def __init__(self, required: bool = False, completions: int = 0, tokens: int = 0):
        self.required, self.completions, self.tokens = required, completions, tokens
        self._before = 0

    def state(self) -> dict[str, Any]:
        """Return the counts in the form that transformers saves."""
        counts = {"completions": self.completions, "tokens": self.tokens}
        return {"args": {"required": self.required}, "attributes": counts}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue the counts of the checkpoint, or start at 0."""
        saved = state.stateful_callbacks.get(type(self).__name__, {}) if state.global_step else {}
        vars(self).update({"completions": 0, "tokens": 0} | saved.get("attributes", {}))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the count before the step."""
        self._before = self.completions

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise `ConfigurationError` if the step passed by the loss that VADE corrects."""
        if self.required and self.completions == self._before:
            raise ConfigurationError(
                f"vade_down_sampling={args.vade_down_sampling!r}, but the loss did not pass "
                "VADEGRPOTrainer._compute_loss. A subclass or a patch of the trainer computes its own. Let its "
                "_compute_loss call super(), or set vade_down_sampling='none'."
            )


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class LastCheckpoint(TrainerCallback):
    """Callback that saves a checkpoint and stops at the end of the step after SIGTERM (preemption) or Ctrl-C.

    The signal then has its usual effect. A second Ctrl-C interrupts at once. A signal that this process ignores, as
    background jobs of a script do with Ctrl-C, stays so. With `enable_jit_checkpoint` of transformers it does nothing.
    """

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator
        self._received: int | None = None

    @contextmanager
    def watching(self, args: Any) -> Iterator[None]:
        """Catch the signals within the block, and raise the one that arrived after it: not after an error."""
        self._received = None
        in_main_thread = threading.current_thread() is threading.main_thread()  # Python allows handlers there alone
        if not in_main_thread or args.save_strategy == "no" or args.enable_jit_checkpoint:
            yield
            return
        caught = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._received is not None:
            signal.raise_signal(self._received)  # after an error it would hide that

    def _note(self, number: int, frame: Any) -> None:
        if self._received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self._received = number
        logger.warning(
            f"{signal.Signals(number).name} received. Training stops after this optimiser step, with a last "
            "checkpoint, and the process when its uploads are done. A second Ctrl-C does not wait."
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a save and a stop on all processes if any has a signal; it may reach one a step before another."""
        asked = self._received is not None
        if self._accelerator.num_processes > 1:
            asked = bool(gather(torch.tensor([asked], device=self._accelerator.device)).any())
        if asked:
            control.should_save = control.should_training_stop = True
