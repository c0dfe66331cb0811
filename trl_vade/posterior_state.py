"""The arrays of a saved posterior, and the rules that they keep."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import MOST_TRIALS, check_whole_number
from .errors import SnapshotCorruptError

STATE_ARRAYS = ("sample_index", "alpha", "beta", "last_update", "visits")
"""The arrays of `BetaPosterior.state_dict`, one entry for each row ever visited, in ascending order of the row."""

LARGE = 100_000
"""Rows from which on a pool is large: its counts are float32, and held for the visited rows alone."""


def count_dtype(num_samples: int) -> np.dtype[Any]:
    """Return the type of the counts of a pool of N rows: float32 where it is large, else float64.

    Less memory and a smaller snapshot where these count, at a relative error below 1e-6 over 10,000 steps
    (`scripts/benchmark_selection.py --precision`). Smaller pools keep what they always had.
    """
    return np.dtype(np.float32 if num_samples >= LARGE else np.float64)


def check_saved_numbers(state: Mapping[str, Any], num_samples: int) -> None:
    """Raise `SnapshotCorruptError` unless a run over `num_samples` rows can have saved this."""
    again = "The file was damaged or edited; load an earlier snapshot."
    step = check_whole_number(
        "The saved step", state["step"], minimum=0, maximum=2**53, advice=again, error=SnapshotCorruptError
    )
    shape = getattr(state["sample_index"], "shape", None)
    counts = {np.dtype(np.float64), count_dtype(num_samples)}  # float64: large pools had it, too, at first
    for name in STATE_ARRAYS:
        array, allowed = state[name], counts if name in ("alpha", "beta") else {np.dtype(np.int64)}
        if not isinstance(array, np.ndarray) or array.dtype not in allowed or array.ndim != 1 or array.shape != shape:
            raise SnapshotCorruptError(
                f"The saved {name} is {_describe(array)}; it must be a {' or '.join(sorted(map(str, allowed)))} "
                f"vector with one entry for each visited row, as sample_index, which has shape {shape}. {again}"
            )
    rows, alpha, beta, last_update, visits = (state[name] for name in STATE_ARRAYS)
    rules = {
        "sample_index must rise strictly": rows[1:] > rows[:-1],
        f"sample_index must be in [0, {num_samples})": (rows >= 0) & (rows < num_samples),
        "alpha must be finite and not negative": (alpha >= 0) & (alpha < np.inf),
        "beta must be finite and not negative": (beta >= 0) & (beta < np.inf),
        "last_update must be in [1, step]": (last_update >= 1) & (last_update <= step),
        "visits must be in [1, last_update]": (visits >= 1) & (visits <= last_update),
        "alpha and beta must be at most 2**53 a visit": np.maximum(alpha, beta) <= MOST_TRIALS * visits,
    }
    for rule, holds in rules.items():
        if not holds.all():
            raise SnapshotCorruptError(
                f"In the saved posterior {rule}, and {np.count_nonzero(~holds)} of {rows.size} entries break this. "
                f"{again}"
            )


def _describe(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
