"""The numbers of each row, held for the rows that have any: memory follows what was visited, not the data set.

Axis letters: N rows of the data set, V of them ever visited, K rows of one step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import MOST_TRIALS, IntArray, check_whole_number
from trl_vade.errors import SnapshotCorruptError

STATE_ARRAYS = ("sample_index", "alpha", "beta", "last_update", "visits")
"""The arrays of `BetaPosterior.state_dict`, one entry for each row ever visited, in ascending order of the row."""

LARGE = 100_000
"""Rows from which on a pool is large: its counts are float32, and held for the visited rows alone."""


def count_dtype(num_samples: int) -> np.dtype[Any]:
    """Return the type of the counts of a pool of N rows: float32 where it is large, else float64.

    Less memory and a smaller snapshot where these count, at a relative error below 1e-6 over 10,000 steps
    (`eval.benchmarks.selection --precision`). Smaller pools keep what they always had.
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


Columns = list[NDArray[Any]]


class RowStore:
    """Four numbers of each of N rows, all 0 for a row never visited: alpha, beta, last_update and visits.

    Sparse: V entries a column, in rising order of their rows, which are found by binary search. A step copies the
    columns where it visits new rows: 6 to 18 ms for a million visited rows (`eval.benchmarks.selection`).

    Dense: N entries a column. So a pool is held from the moment on at which this takes less memory, three quarters
    visited, and one of fewer than `LARGE` rows from the beginning: 3 MB at most, and nothing to search.

    The counts are float64, and float32 in a pool of `LARGE` rows or more. That depends on N alone, so that a run which
    is resumed goes on bit for bit.

    Args:
        num_samples: N, at least 1.
    """

    def __init__(self, num_samples: int) -> None:
        counts = count_dtype(num_samples)
        self._num_samples = num_samples
        self._dtypes: dict[str, np.dtype[Any]] = {"alpha": counts, "beta": counts}
        self._dtypes |= dict.fromkeys(["last_update", "visits"], np.dtype(np.int64))
        self._rows: IntArray | None = None if num_samples < LARGE else np.empty(0, dtype=np.int64)  # (V,); dense: None
        size = num_samples if self._rows is None else 0
        self._columns = {name: np.zeros(size, dtype) for name, dtype in self._dtypes.items()}

    @property
    def visited(self) -> IntArray:
        """(V,) the rows with visits, in rising order; not to be written into."""
        return np.flatnonzero(self._columns["visits"]) if self._rows is None else self._rows

    @property
    def most_counts(self) -> float:
        """The largest alpha + beta of a row."""
        return float((self._columns["alpha"] + self._columns["beta"]).max(initial=0.0))

    def read(self, rows: IntArray | None, *names: str) -> Columns:
        """Return the columns of these names at the rows, (K,) each, or at all, (N,) each; not to be written into."""
        if self._rows is None:
            return [self._columns[name][slice(None) if rows is None else rows] for name in names]
        here, places = (self._rows, slice(None)) if rows is None else self._find(rows)
        columns = []
        for name in names:
            columns.append(np.zeros(self._num_samples if rows is None else rows.size, self._dtypes[name]))
            columns[-1][here] = self._columns[name][places]
        return columns

    def write(self, rows: IntArray, **values: Any) -> None:
        """Set all four numbers of the rows named, (K,) different ones; `visits` at least 1."""
        if self._rows is not None:
            self._make_room(rows)
        places = rows if self._rows is None else np.searchsorted(self._rows, rows)
        for name, column in self._columns.items():
            column[places] = values[name]

    def _find(self, rows: IntArray) -> tuple[Any, Any]:
        """Whether each row was visited, (K,) bool, and the places of those that were."""
        assert self._rows is not None
        if rows is self._rows:
            return slice(None), slice(None)
        places = np.searchsorted(self._rows, rows)
        here = places < self._rows.size
        here[here] = self._rows[places[here]] == rows[here]
        return here, places[here]

    def _make_room(self, rows: IntArray) -> None:
        """Give every row a place, and all of them one where that takes less memory."""
        assert self._rows is not None
        new = np.sort(rows[~self._find(rows)[0]])
        width = sum(dtype.itemsize for dtype in self._dtypes.values())
        if (self._rows.size + new.size) * (width + new.itemsize) > self._num_samples * width:
            names = list(self._columns)
            self._columns, self._rows = dict(zip(names, self.read(None, *names), strict=True)), None
        elif new.size:
            places = np.searchsorted(self._rows, new)
            columns = {name: np.insert(column, places, 0) for name, column in self._columns.items()}
            self._rows, self._columns = np.insert(self._rows, places, new), columns
