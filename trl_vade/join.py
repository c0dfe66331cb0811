"""A saved posterior carried over to other rows or settings: counts follow their rows, whatever their number."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import IntArray, check_fields
from .errors import SnapshotMismatchError
from .posterior import posterior_from
from .snapshot import Snapshot


def find_rows(saved_key: IntArray, sample_key: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
    """Look each of the V saved keys up among the N keys of a data set, all different.

    Returns:
        Whether it is there, (V,), and its row, (V,), which means nothing where it is not.
    """
    order = np.argsort(sample_key)
    position = np.minimum(np.searchsorted(sample_key[order], saved_key), len(sample_key) - 1)
    rows = order[position]
    return sample_key[rows] == saved_key, rows


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
