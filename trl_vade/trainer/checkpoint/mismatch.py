"""Resumes from a checkpoint whose posterior belongs to another run (`vade_on_mismatch`)."""

import os
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger

from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotError, SnapshotMismatchError, abbreviated
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.samplers.snapshot import Snapshot
from trl_vade.selection.warm_start import evidence

from ..loader import generate_every
from ..selection_choice import make_selection

logger = get_logger(__name__)


def posterior_identity(trainer: Any) -> dict[str, Any]:
    """Return the facts that a posterior depends on. A run with other facts cannot continue with it."""
    return {
        "dataset_fingerprint": trainer.selection.fingerprint,
        **trainer.selection.feedback.signal.facts,
        "num_generations": trainer.num_generations,
    }


def compare_rows(trainer: Any, snapshot: Snapshot) -> str:
    """Return what the rows of the snapshot and of the run have in common, for a message."""
    keys, num_saved = trainer.selection.sample_keys[0], snapshot.sampler_state["posterior"]["num_samples"]
    text = f" ({num_saved} training rows there, {len(keys)} here"
    if snapshot.sample_key is not None:
        found, _ = find_rows(snapshot.sample_key, keys)
        text += f"; of the {len(found)} rows scored there, {found.sum()} are here"
    there, here = snapshot.metadata.get("columns", []), trainer.selection.dataset.column_names
    if differing := sorted({*there} ^ {*here}):
        text += f"; the columns {abbreviated(differing)} are in only one of them: the data set has changed, or "
        text += f"remove_unused_columns, which is {trainer.args.remove_unused_columns} here"
    return text + ")"


def resume_joined(
    trainer: Any, checkpoint: str | os.PathLike[str], snapshot: Snapshot, reason: SnapshotMismatchError
) -> None:
    """Resume with the counts of the rows that both data sets have; see `start_with_counts` for the errors."""
    try:
        number = start_with_counts(trainer, snapshot, Path(checkpoint).name)
    except SnapshotMismatchError as error:
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot help: {error} Set vade_on_mismatch='reset' to start a new "
            "posterior."
        ) from reason
    num_rows = len(trainer.train_dataset)
    logger.warning(
        f"vade_on_mismatch='join': {reason} A new posterior starts with the counts of {number} of the "
        f"{len(snapshot.sample_key)} rows that were scored there. The other {num_rows - number} of the {num_rows} "
        "rows here start from the prior. The next generation batch is chosen anew."
    )


def resume_stock(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Resume from a checkpoint of `GRPOTrainer`, with the rows that it would take next; for `uniform`.

    Its loader starts at the first permutation in any epoch, and skips the batches of the epoch (TRL 1.16).
    """
    begin_anew(trainer, make_selection(trainer))
    for _ in range(trainer._batches_to_skip // generate_every(trainer)):
        trainer.selection.sampler.draw(trainer.selection.num_groups)
    logger.warning(
        f"GRPOTrainer saved {checkpoint}. vade_sampler='uniform' continues with the rows that GRPOTrainer would take. "
        "The posterior starts without evidence, and rollouts are counted from 0."
    )


def start_again(trainer: Any, checkpoint: str | os.PathLike[str], reason: SnapshotError) -> None:
    """Resume with the weights of the checkpoint and a new posterior."""
    begin_anew(trainer, make_selection(trainer))
    logger.warning(
        f"vade_on_mismatch='reset': {reason} A new posterior starts with "
        f"vade_posterior_init={trainer.args.vade_posterior_init!r} for all {len(trainer.train_dataset)} rows, and "
        f"rollouts are counted from 0. The saved posterior stays in {checkpoint}."
    )


def start_with_counts(trainer: Any, snapshot: Snapshot, source: str) -> int:
    """Start a new selection with the counts that `snapshot` has for rows of this run; return the number of these rows.

    This is a warm start with all of their counts: one step of the posterior, and the first line of the log, which
    names the `source`. The totals of the run go on. After an error the trainer is unchanged.

    Raises:
        SnapshotMismatchError: the success signals differ, or no scored row is in this data set.
    """
    selection, run = make_selection(trainer), snapshot.metadata["run"]
    feedback = selection.feedback
    feedback.adopt_signal(snapshot.metadata)
    if any(snapshot.metadata.get(name) != value for name, value in feedback.signal.facts.items()):
        raise SnapshotMismatchError("Pass rates under another success signal say nothing about this one.")
    table = posterior_table(snapshot)
    warm = evidence(table, selection.dataset, selection.sample_keys[0], discount=1.0, source=source)
    if len(table) and not len(warm.sample_index):
        raise SnapshotMismatchError(f"None of the {len(table)} scored rows is in this data set.")
    begin_anew(trainer, selection)
    if run["outage"].get("streak"):
        logger.warning("The counts were saved during a reward outage, so they include its verdicts.")
    feedback.load_state_dict(run | {"outage": {}})
    feedback.warm_start(warm.outcomes, source)
    return len(warm.sample_index)


def begin_anew(trainer: Any, selection: Any) -> None:
    """Set the selection of `trainer`, and rename the log of the choices so far, which is kept."""
    trainer.selection = selection
    if trainer.accelerator.is_main_process:
        kept = selection.feedback.log.set_aside()
        if kept:
            logger.warning(f"The earlier choices are kept in {kept}. This run writes {selection.feedback.log.path}.")
