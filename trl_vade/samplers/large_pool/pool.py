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

Where fewer than k are inside (once in 1e14 draws, about; once in 1e4 where a sample told the width) the others are
drawn, from their beliefs outside the window. To draw all anew would be wrong: that case would then hold draws with
more than k inside, too.

Source: thinning is Lewis and Shedler (1979), Naval Research Logistics Quarterly 26, 403-413; no paper on GRPO. Axis
letters: N rows of the data set, V of them visited, M left out, S strata, K rows named, k asked for, J candidates.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trl_vade.checks import FloatArray, IntArray

from ..information import gain_of
from ..strata import Strata, best_places
from .free_rows import BoolArray, FreeRows
from .window import Window, beta_density, find_window, highest_density, largest_density, wanted_inside

Candidates = tuple[IntArray, FloatArray]  # (J,) each: rows, the pass rates drawn for them
Choice = tuple[IntArray, FloatArray, FloatArray]  # (K,) each: rows, pass rates drawn for them, expected ones

MOST_PROPOSED = 0.1
"""Where a larger part of the visited rows would be proposed, to draw all of them is as fast."""
SAMPLE = 2048
"""Rows that are looked at to guess how wide a window has to be."""
ROWS_OF_A_PART = 4000
"""In the time that a stratum takes, so many rows can be drawn one by one."""
NOWHERE: Window = (1.0, 0.0)


@dataclass(frozen=True)
class Part:
    """Rows that compete with each other: all N, or those of a stratum."""

    number: int  # of the stratum, or 0
    rows: IntArray | None  # (n,) in rising order; None: all N
    size: int  # n
    visited: IntArray  # (V,) of them
    num_fresh: int  # rows without evidence that are not left out


class LargePool:
    """The rows that one draw may choose from, of which it finds the best.

    Args:
        rows: those that may be chosen.
        gain: "asymmetric" or "symmetric".
        greedy: whether the expected pass rates stand for drawn ones.
        strata: each of which has its share.
        quotas: k -> (S,) the share of each stratum; None without strata.
    """

    def __init__(
        self,
        rows: FreeRows,
        *,
        gain: str,
        greedy: bool,
        strata: Strata | None = None,
        quotas: Callable[[int], IntArray | None] = lambda k: None,
    ) -> None:
        self._rows, self._gain, self._greedy, self._strata, self._quotas = rows, gain, greedy, strata, quotas
        self._chance = rows.chance
        self._windows: dict[int, Window] = {}  # by the number of the part

    def draw(self, k: int, num_blind: int = 0) -> Choice | None:
        """Return the best `k` rows, of each stratum its share, and then `num_blind` others, drawn uniformly.

        None where they cannot be drawn in this way, or not faster than by a draw of all rows.
        """
        if not self._serves(k + num_blind):
            return None
        quotas = self._quotas(k)
        candidates = rows, pass_rate = self._candidates(k, quotas)
        gain = gain_of(pass_rate, self._gain)
        chosen = best_places(rows, gain, k, self._strata, quotas) if k else np.empty(0, dtype=np.int64)
        rows, pass_rate = rows[chosen], pass_rate[chosen]
        if num_blind:
            rows, pass_rate = _concatenated((rows, pass_rate), self._blind(num_blind, candidates, rows))
        a, b = self._rows.belief(rows)
        return rows, pass_rate, a / (a + b)

    def _serves(self, k: int) -> bool:
        """Whether k rows can be drawn in this way, since as many may be chosen, and are drawn faster."""
        # A greedy draw takes fresh rows in their order, which is wrong where their priors differ.
        if self._greedy and self._rows.prior.stratum is not None:
            return False
        quotas = self._quotas(k)
        if quotas is not None and np.count_nonzero(quotas) * ROWS_OF_A_PART > self._rows.size:
            return False
        return bool(self._rows.num_fresh >= k or self._rows.size - self._rows.taken.size >= k)

    def _candidates(self, k: int, quotas: IntArray | None) -> Candidates:
        """Return J rows and their pass rates. The best k are among them; with `quotas`, (S,), the best of each stratum
        instead, and of all strata the best for the places that one of them cannot fill."""
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return _concatenated(
            nothing, *(self._best_of(part, wanted) for part, wanted in self._parts(k, quotas) if wanted)
        )

    def _blind(self, count: int, candidates: Candidates, chosen: IntArray) -> Candidates:
        """Return `count` rows drawn uniformly, none of them among those `chosen`, and the pass rates that they had."""
        size = self._rows.size

        def free(rows: IntArray) -> BoolArray:
            return self._rows.are_free(rows) & ~np.isin(rows, chosen)

        num_free = self._rows.num_fresh if 2 * self._rows.num_fresh > size else size - self._rows.taken.size
        rows = self._rows.distinct(count, None, num_free - chosen.size, free)
        parts = np.zeros(count, np.int64) if self._strata is None else self._strata.of(rows)
        both = np.isin(candidates[0], rows)
        known = dict(zip(candidates[0][both].tolist(), candidates[1][both].tolist(), strict=True))
        # A row that is no candidate is known to be outside the window of its part. Of another one this is not drawn:
        # its belief may be wholly inside.
        places = zip(rows.tolist(), parts.tolist(), strict=True)
        lo, hi = np.array([NOWHERE if row in known else self._windows.get(part, NOWHERE) for row, part in places]).T
        pass_rate = zip(rows.tolist(), self._drawn(rows, lo, hi).tolist(), strict=True)
        return rows, np.array([known.get(row, rate) for row, rate in pass_rate])

    def _parts(self, k: int, quotas: IntArray | None) -> Iterator[tuple[Part, int]]:
        """Each part that is to give rows, and how many of its best."""
        size = self._rows.size
        if self._strata is None or quotas is None:
            yield Part(0, None, size, self._rows.visited, self._rows.num_fresh), k
            return
        strata = self._strata
        places, ends = strata.by_stratum(self._rows.visited)
        num_fresh = strata.sizes - np.diff(ends) - strata.count(self._rows.fresh_excluded)
        free = strata.sizes - strata.count(self._rows.taken)
        short = int(np.maximum(quotas - free, 0).sum())
        for number in np.flatnonzero(np.minimum(quotas + short, free)).tolist():
            rows, visited = strata.rows(number), self._rows.visited[places[ends[number] : ends[number + 1]]]
            part = Part(number, rows, rows.size, visited, int(num_fresh[number]))
            yield part, min(int(quotas[number]) + short, int(free[number]))

    def _best_of(self, part: Part, k: int) -> Candidates:
        """Rows of a part that hold its best k, which may be chosen."""
        if self._greedy:
            return self._first_of(part, k)
        a, b = self._rows.prior.table.T
        span = find_window(wanted_inside(k), self._gain, self._expected_density(part), a, b)
        if span is None:
            return self._others_of(part, np.empty(0, dtype=np.int64), NOWHERE)
        self._windows[part.number] = lo, hi = span
        rows, pass_rate = _concatenated(self._fresh_inside(part, span), self._visited_inside(part, span))
        may = self._rows.are_free(rows)
        rows, pass_rate = rows[may], pass_rate[may]
        if np.count_nonzero((lo <= pass_rate) & (pass_rate <= hi)) >= k:
            return rows, pass_rate
        return _concatenated((rows, pass_rate), self._others_of(part, rows, span))

    def _expected_density(self, part: Part) -> Callable[[FloatArray], FloatArray]:
        """Pass rates, (P,) -> how many rows of the part are to be expected there, by unit of pass rate.

        Whatever it says, the draw is right; where it says too much, fewer than k rows are inside, and that is slow. So
        of what a sample tells four standard errors are taken off.
        """
        terms: list[Callable[[FloatArray], FloatArray]] = []
        if self._rows.prior.stratum is None:
            terms.append(lambda p: part.num_fresh * beta_density(p, *self._rows.prior.table.T))
        elif part.num_fresh:
            fresh = self._rows.distinct(min(SAMPLE, part.num_fresh), part.rows, part.num_fresh, self._rows.are_fresh)
            terms.append(self._density_of_sample(fresh, part.num_fresh))
        if 4 * part.num_fresh < part.size and part.visited.size:  # else the fresh ones are enough
            visited = part.visited[self._chance.integers(part.visited.size, size=SAMPLE)]
            terms.append(self._density_of_sample(visited, part.visited.size))
        return lambda p: np.sum([term(p) for term in terms], axis=0)

    def _density_of_sample(self, rows: IntArray, number: int) -> Callable[[FloatArray], FloatArray]:
        """`_expected_density` of so many rows, of which `rows` are a sample."""
        (a, b), free = self._rows.belief(rows), self._rows.are_free(rows)

        def density(p: FloatArray) -> FloatArray:
            each = beta_density(p[:, None], a, b) * free
            least: FloatArray = each.mean(axis=1) - 4.0 * each.std(axis=1) / math.sqrt(rows.size)
            return number * least

        return density

    def _fresh_inside(self, part: Part, span: Window) -> Candidates:
        """The rows without evidence whose pass rates are in the window."""

        def pick(count: int) -> IntArray:
            return self._rows.distinct(count, part.rows, part.num_fresh, self._rows.are_fresh)

        a, b = self._rows.prior.table.T
        return self._thinned(part.num_fresh, highest_density(a, b, *span), pick, span)

    def _visited_inside(self, part: Part, span: Window) -> Candidates:
        """The same of the rows with evidence; or all of them, where that is no more work."""

        def pick(count: int) -> IntArray:
            return part.visited[self._chance.choice(part.visited.size, count, replace=False)]

        a, b = self._rows.prior.table.T
        most = largest_density(self._rows.most_strength, float(a.min()), float(b.min()), *span)
        if most * (span[1] - span[0]) > MOST_PROPOSED:
            return part.visited, self._drawn(part.visited, *NOWHERE)
        return self._thinned(part.visited.size, most, pick, span)

    def _thinned(self, num_rows: int, most: float, pick: Callable[[int], IntArray], span: Window) -> Candidates:
        """Those of `num_rows` whose pass rates are in the window, where their densities are at most `most`."""
        lo, hi = span
        rows = pick(int(self._chance.binomial(num_rows, most * (hi - lo))))
        pass_rate = self._chance.uniform(lo, hi, rows.size)
        kept = most * self._chance.random(rows.size) < beta_density(pass_rate, *self._rows.belief(rows))
        return rows[kept], pass_rate[kept]

    def _others_of(self, part: Part, but: IntArray, span: Window) -> Candidates:
        """All rows of a part that may be chosen, but those named, with pass rates outside the window."""
        every = np.arange(part.size) if part.rows is None else part.rows
        every = every[self._rows.are_free(every) & ~np.isin(every, but)]
        return every, self._drawn(every, *span)

    def _first_of(self, part: Part, k: int) -> Candidates:
        """The visited rows and the first k fresh ones, with their expected pass rates: of the fresh all are alike."""
        enough = min(k + part.visited.size + self._rows.excluded.size, part.size)
        first = np.arange(enough) if part.rows is None else part.rows[:enough]
        rows = np.sort(
            np.concatenate([part.visited[self._rows.are_free(part.visited)], first[self._rows.are_fresh(first)][:k]])
        )
        a, b = self._rows.belief(rows)
        return rows, a / (a + b)

    def _drawn(self, rows: IntArray, lo: FloatArray | float, hi: FloatArray | float) -> FloatArray:
        """(J,) pass rates of the rows, drawn from the beliefs outside [lo, hi], or the expected ones if greedy."""
        a, b = self._rows.belief(rows)
        if self._greedy:
            return a / (a + b)
        pass_rate = self._chance.beta(a, b)
        while (inside := (lo <= pass_rate) & (pass_rate <= hi)).any():
            pass_rate[inside] = self._chance.beta(a[inside], b[inside])
        return pass_rate


def _concatenated(*parts: Candidates) -> Candidates:
    """Return the rows of all parts, and their pass rates."""
    rows, pass_rates = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(pass_rates)
