"""The rows that a report shows. The trainer notes them while it trains, and keeps them at each save."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.samplers.posterior import BetaPosterior

NAMED = 50  # rows at each end of the pass rates that have their id and question in `vade_rows.json`
SHOWN = 6  # rows at each end that also have a picture, and most changed rows
BEGINNING = 3  # groups of a row that tell how it began


class Beginnings:
    """The pass rate of each of N rows in its first `BEGINNING` groups."""

    def __init__(self, num_rows: int):
        self._groups = np.zeros(num_rows, dtype=np.uint8)
        self._successes, self._trials = np.zeros((2, num_rows), dtype=np.float32)

    def observe(self, rows: NDArray[np.int64], successes: NDArray[Any], trials: NDArray[Any]) -> None:
        """Note the outcomes of a generation batch, (K,) each; a row may come several times."""
        new = (self._groups[rows] < BEGINNING) & (trials > 0)
        for kept, counts in ((self._groups, 1), (self._successes, successes[new]), (self._trials, trials[new])):
            np.add.at(kept, rows[new], counts)

    def most_changed(self, posterior: BetaPosterior, count: int = SHOWN) -> list[int]:
        """Return the `count` rows whose pass rate now differs most from their beginning, among those seen since."""
        later = np.flatnonzero((posterior.visits > self._groups) & (self._trials > 0))
        change = np.abs(posterior.posterior_mean[later] - self._successes[later] / self._trials[later])
        return [int(row) for row in later[np.argsort(-change, kind="stable")[:count]]]


def both_ends(posterior: BetaPosterior, keys: NDArray[np.int64], count: int = NAMED) -> tuple[list[int], list[int]]:
    """Return the `count` rows with the lowest pass rates and those with the highest, none twice.

    Ties are in the order of the `keys`, (N,), as 16 hexadecimal digits: that of `trl-vade posterior show`.
    """
    seen = np.flatnonzero(posterior.visits > 0)
    order = seen[np.lexsort((keys[seen].view(np.uint64), posterior.posterior_mean[seen]))].tolist()
    return order[:count], order[max(len(order) - count, count) :][::-1]


def replayed(beginnings: Beginnings, lines: Iterable[dict[str, Any]]) -> Beginnings:
    """Let `beginnings` observe the lines of a selection log, and return it."""
    for line in lines:
        if "warm_start" not in line:
            beginnings.observe(*(np.asarray(line[name]) for name in ("sample_index", "successes", "trials")))
    return beginnings
