"""The rows that one draw may choose from: asked about by their numbers, and taken at random.

Axis letters: N rows of the data set, V of them visited, M left out, K rows named.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trl_vade.checks import FloatArray, IntArray

from ..posterior import BetaPosterior
from ..prior import Prior

BoolArray = NDArray[np.bool_]


class FreeRows:
    """The rows that are not left out and do not rest; nothing here is of length N where V is not.

    Args:
        posterior: of the N rows.
        prior: the belief about a row without evidence.
        rests: (K,) rows -> whether the cooldown keeps them out.
        excluded: (M,) different rows, left out.
        chance: the random numbers of the draw.

    Attributes:
        size: N.
        visited: (V,) rows with evidence, in rising order, whether they are free or not.
        num_fresh: rows without evidence that are free.
    """

    def __init__(
        self,
        posterior: BetaPosterior,
        prior: Prior,
        rests: Callable[[IntArray], BoolArray],
        excluded: IntArray,
        chance: np.random.Generator,
    ) -> None:
        self._posterior, self._rests = posterior, rests
        self.prior, self.excluded, self.chance = prior, excluded, chance
        self.size, self.visited = posterior.num_samples, posterior.visited
        self.num_fresh = self.size - self.visited.size - self.fresh_excluded.size

    @functools.cached_property
    def fresh_excluded(self) -> IntArray:
        """Those of `excluded` that are without evidence."""
        rows: IntArray = self.excluded[self._posterior.last_update_of(self.excluded) == 0]
        return rows

    @functools.cached_property
    def taken(self) -> IntArray:
        """The rows that are not free, in rising order."""
        return np.union1d(self.excluded, self.visited[self._rests(self.visited)])

    @functools.cached_property
    def most_strength(self) -> float:
        """No belief Beta(a, b) has a larger a + b."""
        return self._posterior.most_counts + float(self.prior.table.sum(axis=1).max())

    def belief(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return (a, b) of the belief Beta(a, b) about the rows, (K,) each."""
        (alpha, beta), (a, b) = self._posterior.counts(rows), self.prior.of(rows)
        return alpha + a, beta + b

    def are_fresh(self, rows: IntArray) -> BoolArray:
        """(K,) whether the rows are free and without evidence."""
        fresh: BoolArray = self._posterior.last_update_of(rows) == 0
        return fresh & ~np.isin(rows, self.excluded)

    def are_free(self, rows: IntArray) -> BoolArray:
        """(K,) whether the rows are free."""
        return ~(self._rests(rows) | np.isin(rows, self.excluded))

    def distinct(
        self, count: int, rows: IntArray | None, num_free: int, free: Callable[[IntArray], BoolArray]
    ) -> IntArray:
        """(count,) different ones of `rows` (None: all N), of which at least `num_free` are `free`; every ordered
        choice of free rows is equally likely."""
        size = self.size if rows is None else rows.size
        if 2 * count > num_free or 4 * num_free < size:
            every = np.arange(size) if rows is None else rows
            return self.chance.choice(every[free(every)], count, replace=False)
        # Rows are drawn with replacement, and those that are not free or came before are dropped: what is left, in the
        # order of drawing, is a uniform choice without replacement.
        found = np.empty(0, dtype=np.int64)
        while found.size < count:
            more = self.chance.integers(size, size=2 * count + 16)
            more = more if rows is None else rows[more]
            found = np.concatenate([found, more[free(more)]])
            _, first = np.unique(found, return_index=True)
            found = found[np.sort(first)]
        return found[:count]
