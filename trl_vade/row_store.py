"""The numbers of each row, held for the rows that have any: memory follows what was visited, not the data set.

Axis letters: N rows of the data set, V of them ever visited, K rows of one step.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import IntArray
from .posterior_state import LARGE, count_dtype

Columns = list[NDArray[Any]]


class RowStore:
    """Four numbers of each of N rows, all 0 for a row never visited: alpha, beta, last_update and visits.

    Sparse: V entries a column, in rising order of their rows, which are found by binary search. A step copies the
    columns where it visits new rows: 6 to 18 ms for a million visited rows (`scripts/benchmark_selection.py`).

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
