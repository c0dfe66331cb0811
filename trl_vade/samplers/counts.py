"""The storage of the counts of each row. In a large pool only visited rows take memory.

Axis letters: N rows of the data set, V of them ever visited, K rows of one step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import MOST_TRIALS, IntArray, check_whole_number
from trl_vade.errors import SnapshotCorruptError

STATE_ARRAYS = ("sample_index", "alpha", "beta", "last_update", "visits")
"""The arrays of `BetaPosterior.state_dict`: one entry for each visited row, in ascending order of the row."""

LARGE = 100_000  # Smallest N of a large pool. Its counts are float32, and only visited rows are stored.

DAMAGED = "The file was damaged or edited; load an earlier snapshot."


def saved_number(name: str, value: Any, *, minimum: int = 0, maximum: int = 2**53) -> int:
    """Return a saved whole number, or raise `SnapshotCorruptError` unless it is in [minimum, maximum]."""
    limits = {"minimum": minimum, "maximum": maximum}
    return check_whole_number(f"The saved {name}", value, **limits, advice=DAMAGED, error=SnapshotCorruptError)


def count_dtype(num_samples: int) -> np.dtype[Any]:
    """Return the dtype of the counts of N rows: float32 for a large pool, else float64.

    The relative error of float32 stays below 1e-6 over 10,000 steps (`eval.benchmarks.selection --precision`).
    """
    return np.dtype(np.float32 if num_samples >= LARGE else np.float64)


def check_saved_numbers(state: Mapping[str, Any], num_samples: int) -> None:
    """Raise `SnapshotCorruptError` unless a run over `num_samples` rows can have saved `state`."""
    step = saved_number("step", state["step"])
    shape = getattr(state["sample_index"], "shape", None)
    counts = {np.dtype(np.float64), count_dtype(num_samples)}  # early releases saved large pools as float64
    for name in STATE_ARRAYS:
        array, allowed = state[name], counts if name in ("alpha", "beta") else {np.dtype(np.int64)}
        if not isinstance(array, np.ndarray) or array.dtype not in allowed or array.ndim != 1 or array.shape != shape:
            raise SnapshotCorruptError(
                f"The saved {name} is {_describe(array)}; it must be a {' or '.join(sorted(map(str, allowed)))} "
                f"vector with one entry for each visited row; sample_index has shape {shape}. {DAMAGED}"
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
                f"In the saved posterior {rule}; {np.count_nonzero(~holds)} of {rows.size} entries break this rule. "
                f"{DAMAGED}"
            )


def _describe(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


Columns = list[NDArray[Any]]


class RowStore:
    """The columns alpha, beta, last_update and visits of N rows, with zeros for a row never visited.

    Sparse: V entries a column, sorted by row and found by binary search. A step that visits new rows copies the
    columns, which takes 6 to 18 ms for a million visited rows (`eval.benchmarks.selection`).

    Dense: N entries a column, for fewer than `LARGE` rows (3 MB at most). A large pool becomes dense when three
    quarters are visited, because dense columns then take less memory.

    The dtype of the counts depends on N alone, so that a resumed run continues bit for bit; see `count_dtype`.

    Args:
        num_samples: N, at least 1.
    """

    def __init__(self, num_samples: int) -> None:
        counts = count_dtype(num_samples)
        self._num_samples = num_samples
        self._dtypes: dict[str, np.dtype[Any]] = {"alpha": counts, "beta": counts}
        self._dtypes |= dict.fromkeys(["last_update", "visits"], np.dtype(np.int64))
        self._rows: IntArray | None = None if num_samples < LARGE else np.empty(0, dtype=np.int64)  # (V,); None: dense
        size = num_samples if self._rows is None else 0
        self._columns = {name: np.zeros(size, dtype) for name, dtype in self._dtypes.items()}

    @property
    def visited(self) -> IntArray:
        """The rows with visits, (V,), in ascending order. Do not write into the array."""
        return np.flatnonzero(self._columns["visits"]) if self._rows is None else self._rows

    @property
    def most_counts(self) -> float:
        """The largest stored alpha + beta of a row."""
        return float((self._columns["alpha"] + self._columns["beta"]).max(initial=0.0))

    def read(self, rows: IntArray | None, *names: str) -> Columns:
        """Return the named columns at `rows`, (K,) each, or at all rows, (N,) each. Do not write into them."""
        if self._rows is None:
            return [self._columns[name][slice(None) if rows is None else rows] for name in names]
        here, places = (self._rows, slice(None)) if rows is None else self._find(rows)
        columns = []
        for name in names:
            columns.append(np.zeros(self._num_samples if rows is None else rows.size, self._dtypes[name]))
            columns[-1][here] = self._columns[name][places]
        return columns

    def write(self, rows: IntArray, **values: Any) -> None:
        """Set all four columns at the distinct `rows`, (K,); `visits` must be at least 1."""
        if self._rows is not None:
            self._make_room(rows)
        places = rows if self._rows is None else np.searchsorted(self._rows, rows)
        for name, column in self._columns.items():
            column[places] = values[name]

    def _find(self, rows: IntArray) -> tuple[Any, Any]:
        """Return a mask of the visited rows, (K,) bool, and the places of those rows in the columns."""
        assert self._rows is not None
        if rows is self._rows:
            return slice(None), slice(None)
        places = np.searchsorted(self._rows, rows)
        here = places < self._rows.size
        here[here] = self._rows[places[here]] == rows[here]
        return here, places[here]

    def _make_room(self, rows: IntArray) -> None:
        """Insert places for new rows, or switch to dense columns if these take less memory."""
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
