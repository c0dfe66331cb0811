"""Which classes of a trainer define a method: a user's subclass may replace what this package relies on."""

from typing import Any

from trl import GRPOTrainer

SEE_ROWS = ("_prepare_inputs", "training_step", "compute_loss", "_compute_loss", "_get_per_token_logps_and_entropies")
"""Methods through which a subclass sees the rows that are trained on, and their pixels."""


def owners(trainer: Any, method: str) -> list[type]:
    """Return the classes of the trainer that define the method, outermost first, down to `GRPOTrainer`."""
    kinds = type(trainer).__mro__
    return [kind for kind in kinds[: kinds.index(GRPOTrainer) + 1] if method in vars(kind)]


def own_views(trainer: Any) -> list[str]:
    """Return the methods of `SEE_ROWS` that another class than TRL's `GRPOTrainer`, its bases and ours defines.

    They may use every row, as it is: no row may be left out, merged or moved without being asked for.
    """
    known = ("trl_vade.", "trl.trainer.", "transformers.")
    strange = [kind for kind in type(trainer).__mro__ if not f"{kind.__module__}.".startswith(known)]
    return [f"{kind.__name__}.{method}" for kind in strange for method in SEE_ROWS if method in vars(kind)]
