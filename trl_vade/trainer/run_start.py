"""What each `train()` begins with: the rows that the trainer has by then, and a posterior that is about this run."""

from typing import Any

from accelerate.logging import get_logger

from trl_vade.errors import ConfigurationError, SnapshotMismatchError
from trl_vade.samplers.snapshot import Snapshot
from trl_vade.selection.on_time import OnTimeSelection

from .checkpoint.mismatch import begin_anew, join
from .overlong import drop_overlong
from .preflight import selects_on_time
from .presets import is_adaptive
from .row_types import refuse_unnumbered
from .selection_choice import make_selection

logger = get_logger(__name__)


def start_run(trainer: Any, *, resumed: bool, trial: Any = None) -> None:
    """Give `trainer` the selection of the run that begins, and say what there is to say of its rows.

    The first run has the selection that the trainer was made with. A further one begins anew, as in stock, and so does
    each trial of a hyperparameter search, which may have set another seed. Where `train_dataset` was replaced, the
    posterior keeps the counts of the rows that stayed.

    Args:
        trainer: with `_rows`, the data set of its selection, and `_has_begun`, whether a run began with that.
        resumed: whether the run goes on from a checkpoint, which then has the counts.
        trial: of a hyperparameter search, or None.

    Raises:
        ConfigurationError: the rows that were put in place cannot be chosen from.
    """
    earlier, replaced = trainer.selection, trainer.train_dataset is not trainer._rows
    if replaced:
        _look_at_rows(trainer)
    if earlier is not None:
        if replaced and not resumed:
            _keep_counts(trainer, earlier)
        elif replaced:
            trainer.selection = make_selection(trainer)
        elif not resumed and (trainer._has_begun or trial is not None):
            begin_anew(trainer, make_selection(trainer))
        if replaced or not trainer._has_begun:
            trainer.selection.describe_loading()
            if is_adaptive(trainer.args):
                trainer.selection.describe_rows()
    trainer._has_begun = True


def _look_at_rows(trainer: Any) -> None:
    """Refuse or shorten a data set that was put in place, as the constructor does with the first one."""
    given = {name: getattr(trainer, name) for name in ("train_dataset", "processing_class", "tools")}
    given["environment_factory"] = trainer.environment_factories
    refuse_unnumbered(trainer.args, given)
    drop_overlong(given, trainer.args)
    rows = given["train_dataset"]
    if trainer.selection is not None and not selects_on_time(trainer.args, rows):
        raise ConfigurationError(
            f"train_dataset was replaced by {type(rows).__name__} with which vade_sampler='uniform' is the stock "
            "trainer and keeps no posterior, and this trainer keeps one. Put a datasets.Dataset of at least a "
            "generation batch in place, or make another VADEGRPOTrainer for it."
        )
    trainer.train_dataset = trainer._rows = rows
    trainer._warm_start = None  # it is about the rows of before


def _keep_counts(trainer: Any, earlier: OnTimeSelection) -> None:
    """Begin with the counts that `earlier` has of the rows that are still there, and say of how many."""
    state = earlier.sampler.state_dict()
    scored = state["posterior"]["sample_index"]
    if not len(scored):
        begin_anew(trainer, make_selection(trainer))
        return
    state.pop("epoch", None)  # uniform begins at the first permutation, as in stock
    about = {**earlier.feedback.signal.facts, "run": earlier.feedback.state_dict()}
    snapshot = Snapshot(state, about, "", earlier.sample_keys[0][scored])
    try:
        number = join(trainer, snapshot)
    except SnapshotMismatchError:
        number = 0
        begin_anew(trainer, make_selection(trainer))
    logger.warning(
        f"train_dataset was replaced: the posterior keeps the counts of {number} of the {len(scored)} rows that were "
        f"scored; the other {len(trainer._rows) - number} of the {len(trainer._rows)} rows start from the prior."
    )
