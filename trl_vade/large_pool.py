"""The best of a large pool of which little is known: a Thompson draw in O(V + k), where one of all rows is O(N).

A batch of k can hold only the k rows with the largest gains, so it is enough to find the rows whose pass rate is among
the best. The choice has the distribution of a draw of all rows, exactly (up to the rounding of gains), from other
random numbers.

The window. Both gains rise to one mode and fall. Let [lo, hi] of width w lie about it, with equal gains at its ends:
any pass rate inside has a larger gain than any outside. Where k rows or more are inside, the best k are among them.
Rows without evidence share one prior, so it is known how wide it must be for a few more than k of them to be expected
inside; where nearly all rows were visited, a sample of these tells it.

Who is inside, without asking each row (thinning). Let the density f_i of each row's belief be at most D in the window.
Propose each row with probability D w, that is a binomial number of rows without replacement; give it p ~ U(lo, hi),
and keep it with probability f_i(p) / D. Each row is then kept with a pass rate in dp with probability

    D w * dp / w * f_i(p) / D = f_i(p) dp

independently of the others: the same as where p_i ~ Beta(a_i, b_i) is drawn for every row. Fresh rows and visited ones
are proposed apart, since D is 1 under the flat prior and up to alpha + beta + 1 where there is evidence.

Where fewer than k are inside (once in 1e14 draws, about) the others are drawn, from their beliefs outside the window.
To draw all anew would be wrong: that case would then hold draws with more than k inside, too.

Source: thinning is Lewis and Shedler (1979), Naval Research Logistics Quarterly 26, 403-413; no paper on GRPO. Axis
letters: N rows of the data set, V of them visited, M left out, S strata, K rows named, k asked for, J candidates.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checks import FloatArray, IntArray
from .posterior import BetaPosterior
from .prior import Prior
from .strata import Strata
from .window import Window, beta_density, find_window, highest_density, largest_density, wanted_inside

BoolArray = NDArray[np.bool_]
Candidates = tuple[IntArray, FloatArray]  # (J,) each: rows, the pass rates drawn for them
Choice = tuple[IntArray, FloatArray, FloatArray]  # (K,) each: rows, pass rates drawn for them, expected ones

MOST_PROPOSED = 0.1
"""Where a larger part of the visited rows would be proposed, to draw all of them is as fast."""
SAMPLE = 2048
"""Rows that are looked at to guess how wide a window has to be."""
NOWHERE: Window = (1.0, 0.0)


@dataclass(frozen=True)
class Rule:
    """What a draw goes by."""

    gain: str
    greedy: bool
    prior: Prior
    rests: Callable[[IntArray], BoolArray]  # (K,) rows -> whether the cooldown keeps them out
    strata: Strata | None  # each of which has its share


@dataclass(frozen=True)
class Part:
    """Rows that compete with each other: all N, or those of a stratum."""

    number: int  # of the stratum, or 0
    rows: IntArray | None  # (n,) in rising order; None: all N
    size: int  # n
    visited: IntArray  # (V,) of them
    num_fresh: int  # rows without evidence that are not left out


class LargePool:
    """The rows that one draw may choose from: not those left out, and not those that rest.

    Args:
        posterior: of the N rows.
        rule: of the draw.
        excluded: (M,) different rows, left out.
        chance: the random numbers of this draw.

    Attributes:
        num_fresh: rows without evidence that are not left out.
    """

    def __init__(self, posterior: BetaPosterior, rule: Rule, excluded: IntArray, chance: np.random.Generator) -> None:
        self._posterior, self._rule, self._excluded, self._chance = posterior, rule, excluded, chance
        self._visited = posterior.visited
        fresh = posterior.num_samples - self._visited.size
        self.num_fresh = fresh - int(np.count_nonzero(posterior.last_update_of(excluded) == 0))
        self._windows: dict[int, Window] = {}  # by the number of the part

    def serves(self, k: int) -> bool:
        """Whether k rows can be drawn in this way: as many may be chosen."""
        # A greedy draw takes fresh rows in their order, which is wrong where their priors differ.
        alike = not self._rule.greedy or self._rule.prior.stratum is None
        return alike and (self.num_fresh >= k or self._posterior.num_samples - self._taken.size >= k)

    @functools.cached_property
    def _taken(self) -> IntArray:
        """The rows that may not be chosen, in rising order."""
        return np.union1d(self._excluded, self._visited[self._rule.rests(self._visited)])

    def candidates(self, k: int, quotas: IntArray | None) -> Candidates:
        """Return J rows and their pass rates. The best k are among them; with `quotas`, (S,), the best of each stratum
        instead, and of all strata the best for the places that one of them cannot fill."""
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return joined(nothing, *(self._best_of(part, wanted) for part, wanted in self._parts(k, quotas) if wanted))

    def blind(self, count: int, candidates: Candidates, chosen: IntArray) -> Candidates:
        """Return `count` rows drawn uniformly, none of them among those `chosen`, and the pass rates that they had."""

        size = self._posterior.num_samples

        def free(rows: IntArray) -> BoolArray:
            return self._free(rows) & ~np.isin(rows, chosen)

        num_free = self.num_fresh if 2 * self.num_fresh > size else size - self._taken.size
        rows = self._distinct(count, None, num_free - chosen.size, free)
        parts = np.zeros(count, np.int64) if self._rule.strata is None else self._rule.strata.of(rows)
        # A row that is no candidate is known to be outside the window of its part.
        lo, hi = np.array([self._windows.get(part, NOWHERE) for part in parts.tolist()]).T
        both = np.isin(candidates[0], rows)
        known = dict(zip(candidates[0][both].tolist(), candidates[1][both].tolist(), strict=True))
        pass_rate = zip(rows.tolist(), self._drawn(rows, lo, hi).tolist(), strict=True)
        return rows, np.array([known.get(row, rate) for row, rate in pass_rate])

    def _parts(self, k: int, quotas: IntArray | None) -> Iterator[tuple[Part, int]]:
        """Each part that is to give rows, and how many of its best."""
        size = self._posterior.num_samples
        if self._rule.strata is None or quotas is None:
            yield Part(0, None, size, self._visited, self.num_fresh), k
            return
        strata = self._rule.strata
        fresh_out = self._excluded[self._posterior.last_update_of(self._excluded) == 0]
        places, ends = strata.by_stratum(self._visited)
        num_fresh = strata.sizes - np.diff(ends) - strata.count(fresh_out)
        free = strata.sizes - strata.count(self._taken)
        short = int(np.maximum(quotas - free, 0).sum())
        for number in np.flatnonzero(np.minimum(quotas + short, free)).tolist():
            rows, visited = strata.rows(number), self._visited[places[ends[number] : ends[number + 1]]]
            part = Part(number, rows, rows.size, visited, int(num_fresh[number]))
            yield part, min(int(quotas[number]) + short, int(free[number]))

    def _best_of(self, part: Part, k: int) -> Candidates:
        """Rows of a part that hold its best k, which may be chosen."""
        if self._rule.greedy:
            return self._first_of(part, k)
        a, b = self._rule.prior.table.T
        span = find_window(wanted_inside(k), self._rule.gain, self._expected_density(part), a, b)
        if span is None:
            return self._others_of(part, np.empty(0, dtype=np.int64), NOWHERE)
        self._windows[part.number] = lo, hi = span
        rows, pass_rate = joined(self._fresh_inside(part, span), self._visited_inside(part, span))
        may = self._free(rows)
        rows, pass_rate = rows[may], pass_rate[may]
        if np.count_nonzero((lo <= pass_rate) & (pass_rate <= hi)) >= k:
            return rows, pass_rate
        return joined((rows, pass_rate), self._others_of(part, rows, span))

    def _expected_density(self, part: Part) -> Callable[[FloatArray], FloatArray]:
        """Pass rates, (P,) -> how many rows of the part are to be expected there, by unit of pass rate.

        Whatever it returns, the draw is right; where it is too high, fewer than k rows are inside, and that is slow.
        """
        a, b = self._rule.prior.table.T
        weights = np.full(a.size, 1.0 / a.size)
        if self._rule.prior.stratum is not None and part.num_fresh:  # of which strata they are; about is enough
            some = self._distinct(min(SAMPLE, part.num_fresh), part.rows, part.num_fresh, self._fresh)
            weights = np.bincount(self._rule.prior.stratum[some], minlength=a.size) / some.size
        # Where a quarter of the rows is fresh these are enough.
        size = SAMPLE if 4 * part.num_fresh < part.size else 0
        some = part.visited[self._chance.integers(part.visited.size, size=size)] if size else part.visited[:0]
        (known_a, known_b), free = self.belief(some), self._free(some)

        def expected(p: FloatArray) -> FloatArray:
            density: FloatArray = part.num_fresh * (beta_density(p[:, None], a, b) @ weights)
            if not size:
                return density
            known = beta_density(p[:, None], known_a, known_b) * free
            density += part.visited.size * (known.mean(axis=1) - 4.0 * known.std(axis=1) / math.sqrt(size))
            return density

        return expected

    def _fresh_inside(self, part: Part, span: Window) -> Candidates:
        """The rows without evidence whose pass rates are in the window."""

        def pick(count: int) -> IntArray:
            return self._distinct(count, part.rows, part.num_fresh, self._fresh)

        a, b = self._rule.prior.table.T
        return self._thinned(part.num_fresh, highest_density(a, b, *span), pick, span)

    def _visited_inside(self, part: Part, span: Window) -> Candidates:
        """The same of the rows with evidence; or all of them, where that is no more work."""

        def pick(count: int) -> IntArray:
            return part.visited[self._chance.choice(part.visited.size, count, replace=False)]

        a, b = self._rule.prior.table.T
        strength = self._posterior.most_counts + float((a + b).max())
        most = largest_density(strength, float(a.min()), float(b.min()), *span)
        if most * (span[1] - span[0]) > MOST_PROPOSED:
            return part.visited, self._drawn(part.visited, *NOWHERE)
        return self._thinned(part.visited.size, most, pick, span)

    def _thinned(self, num_rows: int, most: float, pick: Callable[[int], IntArray], span: Window) -> Candidates:
        """Those of `num_rows` whose pass rates are in the window, where their densities are at most `most`."""
        lo, hi = span
        rows = pick(int(self._chance.binomial(num_rows, most * (hi - lo))))
        pass_rate = self._chance.uniform(lo, hi, rows.size)
        kept = most * self._chance.random(rows.size) < beta_density(pass_rate, *self.belief(rows))
        return rows[kept], pass_rate[kept]

    def _others_of(self, part: Part, but: IntArray, span: Window) -> Candidates:
        """All rows of a part that may be chosen, but those named, with pass rates outside the window."""
        every = np.arange(part.size) if part.rows is None else part.rows
        every = every[self._free(every) & ~np.isin(every, but)]
        return every, self._drawn(every, *span)

    def _first_of(self, part: Part, k: int) -> Candidates:
        """The visited rows and the first k fresh ones, with their expected pass rates: of the fresh all are alike."""
        enough = min(k + part.visited.size + self._excluded.size, part.size)
        first = np.arange(enough) if part.rows is None else part.rows[:enough]
        rows = np.sort(np.concatenate([part.visited[self._free(part.visited)], first[self._fresh(first)][:k]]))
        a, b = self.belief(rows)
        return rows, a / (a + b)

    def _drawn(self, rows: IntArray, lo: FloatArray | float, hi: FloatArray | float) -> FloatArray:
        """(J,) pass rates of the rows, drawn from the beliefs outside [lo, hi], or the expected ones if greedy."""
        a, b = self.belief(rows)
        if self._rule.greedy:
            return a / (a + b)
        pass_rate = self._chance.beta(a, b)
        while (inside := (lo <= pass_rate) & (pass_rate <= hi)).any():
            pass_rate[inside] = self._chance.beta(a[inside], b[inside])
        return pass_rate

    def belief(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return (a, b) of the belief Beta(a, b) about the rows, (K,) each."""
        (alpha, beta), (a, b) = self._posterior.counts(rows), self._rule.prior.of(rows)
        return alpha + a, beta + b

    def _fresh(self, rows: IntArray) -> BoolArray:
        """(K,) whether the rows are without evidence, and not left out."""
        fresh: BoolArray = self._posterior.last_update_of(rows) == 0
        return fresh & ~np.isin(rows, self._excluded)

    def _free(self, rows: IntArray) -> BoolArray:
        """(K,) whether the rows may be chosen."""
        return ~(self._rule.rests(rows) | np.isin(rows, self._excluded))

    def _distinct(
        self, count: int, rows: IntArray | None, num_free: int, free: Callable[[IntArray], BoolArray]
    ) -> IntArray:
        """(count,) different ones of `rows` (None: all N), of which at least `num_free` are `free`; every ordered
        choice of free rows is equally likely."""
        size = self._posterior.num_samples if rows is None else rows.size
        if 2 * count > num_free or 4 * num_free < size:
            every = np.arange(size) if rows is None else rows
            return self._chance.choice(every[free(every)], count, replace=False)
        # Rows are drawn with replacement, and those that are not free or came before are dropped: what is left, in the
        # order of drawing, is a uniform choice without replacement.
        found = np.empty(0, dtype=np.int64)
        while found.size < count:
            more = self._chance.integers(size, size=2 * count + 16)
            more = more if rows is None else rows[more]
            found = np.concatenate([found, more[free(more)]])
            _, first = np.unique(found, return_index=True)
            found = found[np.sort(first)]
        return found[:count]


def joined(*parts: Candidates) -> Candidates:
    """Return the rows of all parts, and their pass rates."""
    rows, pass_rates = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(pass_rates)
