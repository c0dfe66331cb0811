"""Callbacks that show or note something, and may not end a training."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from accelerate.logging import get_logger
from transformers import TrainerCallback

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
