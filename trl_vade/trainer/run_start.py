"""The start of each `train()`: the posterior of the new run, and a data set that may have been replaced."""

from typing import Any

from accelerate.logging import get_logger

from trl_vade.errors import ConfigurationError, SnapshotMismatchError
from trl_vade.samplers.snapshot import Snapshot
from trl_vade.selection.on_time import OnTimeSelection

from .checkpoint.posterior import begin_anew, start_with_counts
from .overlong import drop_overlong
from .preflight import refuse_unnumbered, selects_on_time
from .presets import is_adaptive
from .selection_choice import make_selection
from .variants import lay_out_variants

logger = get_logger(__name__)


def start_run(trainer: Any, *, resumed: bool, trial: Any = None) -> None:
    """Set `trainer.selection` for the run that begins, and log notices about its rows.

    The first run uses the selection that the trainer was made with. A later run starts a new one, as in TRL. So does
    each trial of a hyperparameter search, which may have set another seed. If `train_dataset` was replaced, the
    posterior keeps the counts of the rows that stayed.

    `trainer._rows` is the data set of its selection, and `_has_begun` tells whether a run used that. A `resumed` run
    has the counts of its checkpoint. New rows that the sampler cannot choose from are a `ConfigurationError`.
    """
    earlier, replaced = trainer.selection, trainer.train_dataset is not trainer._rows
    if replaced:
        _look_at_rows(trainer)
    if earlier is not None:
        if replaced and not resumed:
            _keep_counts(trainer, earlier)
        elif replaced:
            trainer.selection = make_selection(trainer)
        elif not resumed:  # the log of a start that left nothing else is set aside, too
            used = trainer._has_begun or trial is not None
            begin_anew(trainer, make_selection(trainer) if used else earlier)
        if replaced or not trainer._has_begun:
            trainer.selection.describe_loading()
            if is_adaptive(trainer.args):
                trainer.selection.describe_rows()
    trainer._has_begun = True


def _look_at_rows(trainer: Any) -> None:
    """Check the new `train_dataset` and drop overlong rows, as the constructor does with the first one."""
    given = {name: getattr(trainer, name) for name in ("train_dataset", "processing_class", "tools")}
    given["environment_factory"] = trainer.environment_factories
    refuse_unnumbered(trainer.args, trainer.train_dataset)
    drop_overlong(given, trainer.args)
    lay_out_variants(given, trainer.args)
    rows = given["train_dataset"]
    if trainer.selection is not None and not selects_on_time(trainer.args, rows):
        raise ConfigurationError(
            f"train_dataset was replaced by {type(rows).__name__}, for which vade_sampler='uniform' keeps no "
            "posterior, but this trainer has one. Set a datasets.Dataset with at least the rows of one generation "
            "batch, or make another VADEGRPOTrainer for the new data."
        )
    trainer.train_dataset = trainer._rows = rows
    trainer._warm_start = None  # it belongs to the earlier rows


def _keep_counts(trainer: Any, earlier: OnTimeSelection) -> None:
    """Start with the counts that `earlier` has for the rows that stayed, and log their number."""
    state = earlier.sampler.state_dict()
    scored = state["posterior"]["sample_index"]
    if not len(scored):
        begin_anew(trainer, make_selection(trainer))
        return
    about = {**earlier.feedback.signal.facts, "run": earlier.feedback.state_dict()}
    snapshot = Snapshot(state, about, "", earlier.sample_keys[0][scored])
    try:
        number = start_with_counts(trainer, snapshot, "the earlier rows")
    except SnapshotMismatchError:
        number = 0
        begin_anew(trainer, make_selection(trainer))
    logger.warning(
        f"train_dataset was replaced. The posterior keeps the counts of {number} of the {len(scored)} scored rows. "
        f"The other {len(trainer._rows) - number} of the {len(trainer._rows)} rows start from the prior."
    )
