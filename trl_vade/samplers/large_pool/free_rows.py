"""The rows that one draw may choose from.

Axis letters: N rows of the data set, V of them visited, M excluded, K given rows.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import FloatArray, IntArray

from ..posterior import BetaPosterior

BoolArray = NDArray[np.bool_]


class FreeRows:
    """The free rows of a draw: those that are not excluded and do not rest. Memory grows with V and not with N.

    A row without evidence has the belief Beta(1, 1). `rests` returns for rows, (K,), a mask of those that the cooldown
    keeps out. `excluded`, (M,), are distinct rows.
    """

    def __init__(
        self,
        posterior: BetaPosterior,
        rests: Callable[[IntArray], BoolArray],
        excluded: IntArray,
        chance: np.random.Generator,
    ) -> None:
        self._posterior, self._rests = posterior, rests
        self.excluded, self.chance = excluded, chance
        self.size, self.visited = posterior.num_samples, posterior.visited  # N; (V,) in ascending order
        # Fresh rows are free and without evidence.
        self.num_fresh = self.size - self.visited.size - self.fresh_excluded.size

    @functools.cached_property
    def fresh_excluded(self) -> IntArray:
        """The excluded rows without evidence."""
        rows: IntArray = self.excluded[self._posterior.last_update_of(self.excluded) == 0]
        return rows

    @functools.cached_property
    def taken(self) -> IntArray:
        """The rows that are not free, in ascending order."""
        return np.union1d(self.excluded, self.visited[self._rests(self.visited)])

    @functools.cached_property
    def highest_density(self) -> float:
        """An upper bound of the density of every belief Beta(alpha + 1, beta + 1): alpha + beta + 1.

        For a given alpha + beta the logarithm of the height of the mode is convex in alpha: its second derivative is
        1/alpha + 1/beta - psi'(alpha + 1) - psi'(beta + 1) > 0. It is therefore largest at the ends, where the density
        is (alpha + beta + 1) p^(alpha + beta).
        """
        return self._posterior.most_counts + 1.0

    def belief(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the beliefs Beta(a, b) about the rows, (K,) each."""
        alpha, beta = self._posterior.counts(rows)
        return alpha + 1.0, beta + 1.0

    def are_fresh(self, rows: IntArray) -> BoolArray:
        """Return a mask of the fresh rows, (K,): free, without evidence."""
        fresh: BoolArray = self._posterior.last_update_of(rows) == 0
        return fresh & ~np.isin(rows, self.excluded)

    def are_free(self, rows: IntArray) -> BoolArray:
        """Return a mask of the free rows, (K,)."""
        return ~(self._rests(rows) | np.isin(rows, self.excluded))

    def distinct(self, count: int, rows: IntArray | None, num_fresh: int) -> IntArray:
        """Draw distinct fresh rows, (count,), uniformly and in random order.

        Args:
            count: the number of rows to draw.
            rows: the rows to draw from; None stands for all N.
            num_fresh: the number of fresh rows among them.
        """
        size = self.size if rows is None else rows.size
        if 2 * count > num_fresh or 4 * num_fresh < size:
            every = np.arange(size) if rows is None else rows
            return self.chance.choice(every[self.are_fresh(every)], count, replace=False)
        # Draw with replacement and drop repeated rows and rows that are not fresh. The rest, in the order of drawing,
        # is a uniform choice without replacement.
        found = np.empty(0, dtype=np.int64)
        while found.size < count:
            more = self.chance.integers(size, size=2 * count + 16)
            more = more if rows is None else rows[more]
            found = np.concatenate([found, more[self.are_fresh(more)]])
            _, first = np.unique(found, return_index=True)
            found = found[np.sort(first)]
        return found[:count]
