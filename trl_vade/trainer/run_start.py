"""The start of each `train()`: the posterior of the new run, and a data set that may have been replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from accelerate.logging import get_logger

from trl_vade.data.row_keys import find_rows
from trl_vade.errors import ConfigurationError
from trl_vade.selection.on_time import OnTimeSelection
from trl_vade.selection.outcomes import GroupOutcomes

from .checkpoint.lock import holding
from .checkpoint.resuming import begin_line, refuse_other_adapters, resolve_checkpoint
from .console import saying_how_it_ended
from .loader import loading_ahead
from .overlong import drop_overlong
from .preflight import check_stratify_by, refuse_unreadable, why_not_chosen
from .presets import is_adaptive
from .selection_choice import make_selection
from .variants import lay_out_variants

logger = get_logger(__name__)


@contextmanager
def whole_run(trainer: Any, asked: Any) -> Iterator[str | None]:
    """Give the checkpoint that the run in the block goes on from, None for a new one.

    The block holds the output directory alone. A signal leaves a last checkpoint, and the uploads end with the block.
    """
    with holding(trainer.args.output_dir):
        checkpoint = resolve_checkpoint(asked, trainer.args.output_dir)
        if checkpoint is not None:
            refuse_other_adapters(trainer.model, checkpoint)
        trainer._line = begin_line(checkpoint)
        if trainer.selection is not None and not is_adaptive(trainer.args):
            trainer.args.ignore_data_skip = False  # skipping tickets is free, and uniform keeps TRL's epochs
        ends = trainer._last_checkpoint.watching(trainer.args), loading_ahead(trainer), saying_how_it_ended(trainer)
        with ends[0], ends[1], ends[2], trainer.publication.of_run(trainer, checkpoint):
            yield checkpoint


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
            trainer.selection.describe_rows(adaptive=is_adaptive(trainer.args))
    trainer._has_begun = True


def _look_at_rows(trainer: Any) -> None:
    """Check the new `train_dataset` and drop overlong rows, as the constructor does with the first one."""
    given = {name: getattr(trainer, name) for name in ("train_dataset", "processing_class", "tools")}
    given["environment_factory"] = trainer.environment_factories
    refuse_unreadable(given)
    drop_overlong(given, trainer.args)
    lay_out_variants(given, trainer.args)
    rows = given["train_dataset"]
    if trainer.selection is not None:
        if reason := why_not_chosen(trainer.args, rows, type(trainer)):
            raise ConfigurationError(
                f"train_dataset was replaced, and this trainer has a posterior, but no sampler can choose: {reason}. "
                "Change that, or make another VADEGRPOTrainer for the new data."
            )
        check_stratify_by(trainer.args, rows)
    trainer.train_dataset = trainer._rows = rows
    trainer._warm_start = None  # it belongs to the earlier rows


def _keep_counts(trainer: Any, earlier: OnTimeSelection) -> None:
    """Start with the counts that `earlier` has for the rows that stayed, and log their number.

    This is a warm start with all of their counts: one step of the posterior, and the first line of the log. The totals
    of the run go on.
    """
    selection, belief, before = make_selection(trainer), earlier.sampler.posterior, earlier.feedback
    feedback, totals = selection.feedback, before.state_dict()
    if not belief.visited.size:
        return begin_anew(trainer, selection)
    feedback.adopt_signal(before.signal.facts | {"run": totals})
    found, rows = find_rows(earlier.sample_keys[0][belief.visited], selection.sample_keys[0])
    if feedback.signal.facts != before.signal.facts:  # pass rates under another one say nothing
        found[:] = False
    begin_anew(trainer, selection if found.any() else make_selection(trainer))
    if found.any():
        feedback.load_state_dict(totals | {"outage": {}})
        alpha, beta = belief.counts(belief.visited[found])
        outcomes = GroupOutcomes(rows[found], alpha, alpha + beta, np.zeros(len(alpha), dtype=np.bool_))
        feedback.warm_start(outcomes, "the earlier rows")
    logger.warning(
        f"train_dataset was replaced. The posterior keeps the counts of {found.sum()} of the {found.size} scored "
        f"rows. The other {len(trainer._rows) - found.sum()} of the {len(trainer._rows)} rows start from the prior."
    )


def begin_anew(trainer: Any, selection: OnTimeSelection) -> None:
    """Set the selection of `trainer`, and rename the log of the choices so far, which is kept."""
    trainer.selection, log = selection, selection.feedback.log
    if trainer.accelerator.is_main_process and (kept := log.set_aside()):
        logger.warning(f"The earlier choices are kept in {kept}. This run writes {log.path}.")
