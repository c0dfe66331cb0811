"""A last checkpoint when the platform, or a person, asks the process to stop."""

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
    """
    Saves a checkpoint at the end of the optimiser step in which SIGTERM (preemption) or SIGINT (Ctrl-C) arrived, and
    stops; the signal then does what it would have done. A second Ctrl-C interrupts at once, without a checkpoint.

    transformers' own `enable_jit_checkpoint` may save before the update of a step whose completions have already been
    scored; such a checkpoint knows more than its weights have learned, so where it is on, this one stays out.
    """

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator
        self._received: int | None = None
        self._training = False
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether this process was told to stop, and the end of the optimiser step is still to come."""
        return self._received is not None

    @contextmanager
    def watching(self, args: Any) -> Iterator[None]:
        """Note the signals inside the block; after it, hand the one that arrived to whoever would have had it."""
        # Python delivers signals to the main thread and lets no other one ask for them.
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not in_main_thread or args.save_strategy == "no" or args.enable_jit_checkpoint:
            yield
            return
        self._received = None
        self._training = True
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        if self._before[signal.SIGINT] == signal.SIG_IGN:
            logger.warning_once(
                "SIGINT (Ctrl-C) is ignored in this process, as in every background job of a script: it stops the "
                "training with a last checkpoint, and the process then goes on as if the training had ended. Send "
                "SIGTERM to end it."
            )
        try:
            yield
        except Exception as error:
            if self._received is not None:  # after which nobody would show it
                logger.error(f"{type(error).__name__}: {error}")
            raise
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            if self._received is not None:
                signal.raise_signal(self._received)

    def _note(self, number: int, frame: Any) -> None:
        if self._received == signal.SIGINT == number:
            raise KeyboardInterrupt
        if not self._training:  # all is saved, and only pushes to the Hub are waited for
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            return
        self._received = number
        logger.warning(
            f"{signal.Signals(number).name} received: a last checkpoint is written at the end of this optimiser step, "
            "then training stops."
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """All processes save together, or none: the signal may reach one of them a step before another."""
        asked = self._received is not None
        if self._accelerator.num_processes > 1:
            asked = bool(gather(torch.tensor([asked], device=self._accelerator.device)).any())
        if asked:
            control.should_save = control.should_training_stop = True
