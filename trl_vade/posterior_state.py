"""The arrays of a saved posterior, and the rules that they keep."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import MOST_TRIALS, check_whole_number
from .errors import SnapshotCorruptError

STATE_DTYPES = {
    "sample_index": np.dtype(np.int64),
    "alpha": np.dtype(np.float64),
    "beta": np.dtype(np.float64),
    "last_update": np.dtype(np.int64),
    "visits": np.dtype(np.int64),
}
"""The arrays of `BetaPosterior.state_dict`, one entry for each row ever visited, in ascending order of the row."""


def check_saved_numbers(state: Mapping[str, Any], num_samples: int) -> None:
    """Raise `SnapshotCorruptError` unless a run over `num_samples` rows can have saved this."""
    again = "The file was damaged or edited; load an earlier snapshot."
    step = check_whole_number(
        "The saved step", state["step"], minimum=0, maximum=2**53, advice=again, error=SnapshotCorruptError
    )
    shape = getattr(state["sample_index"], "shape", None)
    for name, dtype in STATE_DTYPES.items():
        array = state[name]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1 or array.shape != shape:
            raise SnapshotCorruptError(
                f"The saved {name} is {_describe(array)}; it must be a {dtype} vector with one entry for each visited "
                f"row, as sample_index, which has shape {shape}. {again}"
            )
    rows, alpha, beta, last_update, visits = (state[name] for name in STATE_DTYPES)
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
