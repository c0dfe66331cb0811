"""Which classes of a trainer define a method: a user's subclass may replace what this package relies on."""

from typing import Any

from trl import GRPOTrainer


def owners(trainer: Any, method: str) -> list[type]:
    """Return the classes of the trainer that define the method, outermost first, down to `GRPOTrainer`."""
    kinds = type(trainer).__mro__
    return [kind for kind in kinds[: kinds.index(GRPOTrainer) + 1] if method in vars(kind)]
