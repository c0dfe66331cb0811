"""What a resume does where the checkpoint's posterior is about another run."""

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
    """What a posterior is about; a run with another one cannot go on from it."""
    return {
        "dataset_fingerprint": trainer.selection.fingerprint,
        **trainer.selection.feedback.signal.facts,
        "num_generations": trainer.num_generations,
    }


def compare_rows(trainer: Any, snapshot: Snapshot) -> str:
    keys, num_saved = trainer.selection.sample_keys[0], snapshot.sampler_state["posterior"]["num_samples"]
    rows = f" ({num_saved} training rows there, {len(keys)} here"
    if snapshot.sample_key is None:
        return rows + ")"
    found, _ = find_rows(snapshot.sample_key, keys)
    return f"{rows}; of the {len(found)} rows scored there, {found.sum()} are here)"


def resume_joined(trainer: Any, snapshot: Snapshot, reason: SnapshotError) -> None:
    """Go on with the counts of the rows that are in both data sets."""
    trainer.selection.feedback.adopt_signal(snapshot.metadata)
    signal = trainer.selection.feedback.signal.facts
    if any(snapshot.metadata.get(name) != signal[name] for name in signal):
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot mend this: pass rates under another success signal are no "
            "evidence for this one. Set vade_on_mismatch='reset' to start the posterior again."
        ) from reason
    try:
        num_found = join(trainer, snapshot)
    except SnapshotMismatchError as error:
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot mend this: {error} Set vade_on_mismatch='reset' to start the "
            "posterior again."
        ) from error
    num_rows = len(trainer.train_dataset)
    logger.warning(
        f"vade_on_mismatch='join': {reason} Going on with the counts of {num_found} of the {len(snapshot.sample_key)} "
        f"rows that were scored there; the other {num_rows - num_found} of the {num_rows} rows here start from the "
        "prior. The next generation batch is chosen anew, so this run does not repeat the one that was stopped."
    )


def resume_stock(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Go on with the rows that the stock trainer would go on with from its own checkpoint; for `uniform`.

    Its loader begins at the first permutation in whatever epoch, and skips the batches of the epoch (TRL 1.16).
    """
    begin_anew(trainer, make_selection(trainer))
    for _ in range(trainer._batches_to_skip // generate_every(trainer)):
        trainer.selection.sampler.draw(trainer.selection.num_groups)
    logger.warning(
        f"{checkpoint} was saved by the stock trainer: vade_sampler='uniform' goes on with the rows that it would "
        "take. The posterior starts from nothing, and the rollouts are counted from 0."
    )


def start_again(trainer: Any, checkpoint: str | os.PathLike[str], reason: SnapshotError) -> None:
    """Go on with the weights alone."""
    begin_anew(trainer, make_selection(trainer))
    logger.warning(
        f"vade_on_mismatch='reset': {reason} The posterior starts again, as vade_posterior_init says "
        f"({trainer.args.vade_posterior_init}), for all {len(trainer.train_dataset)} rows, and the rollouts are "
        f"counted from 0; the saved one stays as it is in {checkpoint}."
    )


def join(trainer: Any, snapshot: Snapshot) -> int:
    """Begin anew with the counts and totals of `snapshot`, and return the number of its rows that are here.

    Raises:
        SnapshotMismatchError, SnapshotCorruptError: as `joined_state`; the trainer is as it was.
    """
    selection, run = make_selection(trainer), snapshot.metadata["run"]
    selection.feedback.adopt_signal(snapshot.metadata)
    state, num_found = joined_state(snapshot, selection.sampler.state_dict(), selection.sample_keys[0])
    selection.sampler.load_state_dict(state)
    begin_anew(trainer, selection)
    if run["outage"].get("streak"):
        logger.warning("The counts are of a moment within a reward outage, so they are those of the outage.")
    selection.feedback.load_state_dict(run | {"outage": {}})
    return num_found


def begin_anew(trainer: Any, selection: Any) -> None:
    """Let `trainer` choose by `selection`, and keep the log of the choices so far under another name."""
    trainer.selection = selection
    if trainer.accelerator.is_main_process:
        kept = selection.feedback.log.set_aside()
        if kept:
            logger.warning(f"The choices so far are kept in {kept}; this run's are in {selection.feedback.log.path}.")


def joined_state(snapshot: Snapshot, fresh: Mapping[str, Any], sample_key: IntArray) -> tuple[dict[str, Any], int]:
    """Return the state of a sampler that has the saved counts of the rows that are still there, and their number.

    The counts are taken as they are at the saved step, decayed by the saved lambda_2; from then on the sampler's own
    decays hold. Rows that were not scored, or not there, start from the prior.

    Args:
        snapshot: with the keys of its rows.
        fresh: the state of a new sampler for the data set at hand.
        sample_key: (N,) of the data set at hand.

    Raises:
        SnapshotMismatchError: the snapshot has no keys, or none of its rows is in the data set.
        SnapshotCorruptError: its numbers are such as no run can have saved.
    """
    saved, state = snapshot.sampler_state["posterior"], dict(fresh)
    check_fields("posterior", saved, fresh["posterior"])
    if snapshot.sample_key is None:
        raise SnapshotMismatchError("The snapshot does not say which rows it is about, so they cannot be looked up.")
    posterior = posterior_from(saved)
    found, rows = find_rows(snapshot.sample_key, sample_key)
    if len(found) and not found.any():
        raise SnapshotMismatchError(f"None of the {len(found)} rows that were scored is in this data set.")
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
    # No row rests: when each was chosen is not carried over, and with `last_update` alone all would rest at once.
    if state.get("kind") == "thompson" and posterior.step:
        state["taken_over"] = posterior.step
    # The stream of random numbers goes on where it was; a permutation of other rows cannot, so the next one begins.
    if "num_draws" in state:
        state["num_draws"] = snapshot.sampler_state.get("num_draws", posterior.step)
    if "epoch" in state:
        state["epoch"] = snapshot.sampler_state.get("epoch", -1) + 1
    return state, int(found.sum())
