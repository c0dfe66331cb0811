"""Resumes from a checkpoint whose posterior belongs to another run (`vade_on_mismatch`)."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from accelerate.logging import get_logger

from trl_vade.checks import IntArray, check_fields
from trl_vade.data.row_keys import find_rows
from trl_vade.errors import SnapshotError, SnapshotMismatchError
from trl_vade.samplers.posterior import posterior_from
from trl_vade.samplers.snapshot import Snapshot

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
    """Return the numbers of training rows in the snapshot and in the run, and of rows in both, for a message."""
    keys, num_saved = trainer.selection.sample_keys[0], snapshot.sampler_state["posterior"]["num_samples"]
    rows = f" ({num_saved} training rows there, {len(keys)} here"
    if snapshot.sample_key is None:
        return rows + ")"
    found, _ = find_rows(snapshot.sample_key, keys)
    return f"{rows}; of the {len(found)} rows scored there, {found.sum()} are here)"


def resume_joined(trainer: Any, snapshot: Snapshot, reason: SnapshotError) -> None:
    """Resume with the counts of the rows that both data sets have, and log their number and the `reason`.

    Raises:
        SnapshotMismatchError: the success signals differ, or no scored row is in this data set.
    """
    trainer.selection.feedback.adopt_signal(snapshot.metadata)
    signal = trainer.selection.feedback.signal.facts
    if any(snapshot.metadata.get(name) != signal[name] for name in signal):
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot help: pass rates under another success signal say nothing about "
            "this one. Set vade_on_mismatch='reset' to start a new posterior."
        ) from reason
    try:
        num_found = join(trainer, snapshot)
    except SnapshotMismatchError as error:
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot help: {error} Set vade_on_mismatch='reset' to start a new "
            "posterior."
        ) from error
    num_rows = len(trainer.train_dataset)
    logger.warning(
        f"vade_on_mismatch='join': {reason} The run continues with the counts of {num_found} of the "
        f"{len(snapshot.sample_key)} rows that were scored there. The other {num_rows - num_found} of the {num_rows} "
        "rows here start from the prior. The next generation batch is chosen anew, so this run does not repeat the "
        "stopped run."
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


def join(trainer: Any, snapshot: Snapshot) -> int:
    """Start a new selection with the counts and totals of `snapshot`, and return the number of rows found here.

    After an error of `joined_state` the trainer is unchanged.
    """
    selection, run = make_selection(trainer), snapshot.metadata["run"]
    selection.feedback.adopt_signal(snapshot.metadata)
    state, num_found = joined_state(snapshot, selection.sampler.state_dict(), selection.sample_keys[0])
    selection.sampler.load_state_dict(state)
    begin_anew(trainer, selection)
    if run["outage"].get("streak"):
        logger.warning("The counts were saved during a reward outage, so they include its verdicts.")
    selection.feedback.load_state_dict(run | {"outage": {}})
    return num_found


def begin_anew(trainer: Any, selection: Any) -> None:
    """Set the selection of `trainer`, and rename the log of the choices so far, which is kept."""
    trainer.selection = selection
    if trainer.accelerator.is_main_process:
        kept = selection.feedback.log.set_aside()
        if kept:
            logger.warning(f"The earlier choices are kept in {kept}. This run writes {selection.feedback.log.path}.")


def joined_state(snapshot: Snapshot, fresh: Mapping[str, Any], sample_key: IntArray) -> tuple[dict[str, Any], int]:
    """Return a sampler's state with the saved counts of the rows that stayed, and the number of these rows.

    The counts are those of the saved step, decayed by the saved lambda_2. Later steps use the sampler's own decays.
    New rows, and rows that were not scored, start from the prior.

    `fresh` is the state of a new sampler for the present data set, and `sample_key`, (N,), has the keys of its rows.

    Raises:
        SnapshotMismatchError: the snapshot has no keys, or none of its rows is in the data set.
        SnapshotCorruptError: its numbers are impossible.
    """
    saved, state = snapshot.sampler_state["posterior"], dict(fresh)
    check_fields("posterior", saved, fresh["posterior"])
    if snapshot.sample_key is None:
        raise SnapshotMismatchError("The snapshot has no keys of its rows, so they cannot be found.")
    posterior = posterior_from(saved)
    found, rows = find_rows(snapshot.sample_key, sample_key)
    if len(found) and not found.any():
        raise SnapshotMismatchError(f"None of the {len(found)} scored rows is in this data set.")
    alpha, beta = posterior.counts(saved["sample_index"][found])
    order = np.argsort(rows[found])
    arrays = {
        "sample_index": rows[found],
        "alpha": alpha,
        "beta": beta,
        "last_update": np.full(len(alpha), posterior.step, dtype=np.int64),
        "visits": saved["visits"][found],
    }
    state["posterior"] = {
        **state["posterior"],
        **{name: array[order] for name, array in arrays.items()},
        "step": posterior.step,
    }
    # No row rests: the step of its last choice is not carried over. `last_update` alone would make all rows rest.
    if state.get("kind") == "thompson" and posterior.step:
        state["taken_over"] = posterior.step
    # The stream of random numbers continues. A permutation of other rows cannot, so the next one starts.
    if "num_draws" in state:
        state["num_draws"] = snapshot.sampler_state.get("num_draws", posterior.step)
    if "epoch" in state:
        state["epoch"] = snapshot.sampler_state.get("epoch", -1) + 1
    return state, int(found.sum())
