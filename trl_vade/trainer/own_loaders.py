"""Subclasses of the trainer that bring a sampler or a loader of their own."""

from typing import Any

from accelerate.logging import get_logger
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError

from .presets import is_adaptive, setting

logger = get_logger(__name__)

_LIBRARIES = ("transformers", "trl", "trl_vade")


def brings_own_loader(trainer_class: type, args: GRPOConfig) -> bool:
    """Return whether a subclass of the user's own decides which rows are loaded; `uniform` is then stock, and says so.

    Raises:
        ConfigurationError: it does, and `vade_sampler` chooses rows by what it knows of them.
    """
    own = [_owner(trainer_class, name) for name in ("_get_train_sampler", "get_train_dataloader")]
    found = ", ".join(filter(None, own))
    if found and is_adaptive(args):
        raise ConfigurationError(
            f"{found} is defined by a subclass, and vade_sampler={setting(args, 'sampler')!r}: the rows of a "
            "generation batch would come from both. Leave the method out, so that the sampler chooses, or set "
            "vade_sampler='uniform', with which the method decides as in the stock trainer."
        )
    if found:
        logger.warning(
            f"{found} decides which rows are loaded, so this is stock GRPO, without a posterior and without vade/ "
            "metrics. Leave the method out to have them."
        )
    return bool(found)


def _owner(trainer_class: type, name: str) -> str | None:
    """`Class.name` where a class outside the libraries defines it."""
    owner: Any = next(kind for kind in trainer_class.__mro__ if name in vars(kind))
    return None if owner.__module__.partition(".")[0] in _LIBRARIES else f"{owner.__name__}.{name}"
