"""A last checkpoint when a signal stops the process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import gather
from transformers import TrainerCallback

logger = get_logger(__name__)

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
