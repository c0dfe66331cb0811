"""Which classes of a trainer define a method: a user's subclass may replace what this package relies on."""

from typing import Any

from accelerate.logging import get_logger
from trl import GRPOTrainer

from .down_sampling import down_sampling

logger = get_logger(__name__)

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


def say_own_views(trainer: Any) -> None:
    """Log that a subclass gets every row, if rows would be left out or images kept once without its methods."""
    args, views = trainer.args, own_views(trainer)
    thinned = args.vade_down_sampling is None and down_sampling(args) != "none"
    if views and (thinned or (args.vade_images_once and trainer._is_vlm)):
        logger.warning(
            f"{', '.join(views)} may use every row of a batch. So all rows are trained on, in TRL's order, and images "
            "are processed and kept for each completion. If it needs only rows with an advantage, set "
            "vade_down_sampling='lossless'. To leave this message out, set vade_down_sampling='none' and "
            "vade_images_once=False."
        )
