"""Subclasses of the trainer with a sampler or a loader of their own."""

from typing import Any

from accelerate.logging import get_logger
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError

from .presets import is_adaptive, setting

logger = get_logger(__name__)

_LIBRARIES = ("transformers", "trl", "trl_vade")


def brings_own_loader(trainer_class: type, args: GRPOConfig) -> bool:
    """Return whether a user's subclass decides which rows are loaded, and log that it does.

    Raises:
        ConfigurationError: it does, and `vade_sampler` chooses rows, too.
    """
    own = [_owner(trainer_class, name) for name in ("_get_train_sampler", "get_train_dataloader")]
    found = ", ".join(filter(None, own))
    if found and is_adaptive(args):
        raise ConfigurationError(
            f"A subclass defines {found}, and vade_sampler={setting(args, 'sampler')!r} chooses rows, too. Remove the "
            "method, so that the sampler chooses, or set vade_sampler='uniform', so that the method decides as in "
            "GRPOTrainer."
        )
    if found:
        logger.warning(
            f"{found} decides which rows are loaded, so this run is plain GRPO: without a posterior and without vade/ "
            "metrics. Remove the method to get both."
        )
    return bool(found)


def _owner(trainer_class: type, name: str) -> str | None:
    """Return `Class.name` if a class outside the libraries defines the method `name`."""
    owner: Any = next(kind for kind in trainer_class.__mro__ if name in vars(kind))
    return None if owner.__module__.partition(".")[0] in _LIBRARIES else f"{owner.__name__}.{name}"
