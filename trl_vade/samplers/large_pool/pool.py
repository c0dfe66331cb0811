"""The best rows of a large pool: a Thompson draw in O(V + k) instead of O(N).

The choice has exactly the distribution of a draw of all rows (up to the rounding of gains), from other random numbers.

The window. Both gains rise to one mode and then fall. Let [lo, hi] of width w contain the mode, with equal gains at
both ends. A pass rate inside then has a larger gain than any outside. If at least k rows are inside, the best k are
among them. Fresh rows share one belief, which gives the width that holds a few more than k of them. If nearly all rows
were visited, a sample of these gives the width.

The rows inside are found by thinning, without a draw for each row. Let D bound the density f_i of every belief in the
window. Propose each row with probability D w (a binomial number of rows, without replacement). Draw p ~ U(lo, hi) and
keep the row with probability f_i(p) / D. A row is then kept, with a pass rate in dp, with probability

    D w * dp / w * f_i(p) / D = f_i(p) dp

independently of other rows, as if p_i ~ Beta(a_i, b_i) were drawn for every row. Fresh and visited rows are proposed
separately: D is 1 without evidence, and up to alpha + beta + 1 with it.

If fewer than k rows are inside, the other rows are drawn from their beliefs outside the window. This happens about
once in 1e14 draws (once in 1e4 with a width from a sample). Drawing all rows again would be wrong, because that draw
could have more than k rows inside.

Source: thinning is Lewis and Shedler (1979), Naval Research Logistics Quarterly 26, 403-413; no paper on GRPO. Axis
letters: N rows of the data set, V of them visited, M excluded, S strata, K given rows, k asked for, J candidates.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trl_vade.checks import FloatArray, IntArray

from ..information import gain_of
from ..strata import Strata, best_places
from .free_rows import FreeRows
from .window import Window, beta_density, find_window, wanted_inside

Candidates = tuple[IntArray, FloatArray]  # (J,) each: rows, drawn pass rates
Choice = tuple[IntArray, FloatArray, FloatArray]  # (K,) each: rows, drawn pass rates, expected pass rates

MOST_PROPOSED = 0.1  # The largest share of visited rows to propose. Above it drawing all of them is as fast.
SAMPLE = 2048  # the number of rows sampled to guess the width of a window
ROWS_OF_A_PART = 4000  # the number of rows that can be drawn one by one in the time that one stratum takes
NOWHERE: Window = (1.0, 0.0)


@dataclass(frozen=True)
class Part:
    """Rows that compete with each other: all N, or those of a stratum."""

    number: int  # of the stratum, or 0
    rows: IntArray | None  # (n,) in ascending order; None: all N
    size: int  # n
    visited: IntArray  # (V,) the visited ones
    num_fresh: int  # the number of fresh rows


class LargePool:
    """A search for the best rows among those that one draw may choose from.

    Args:
        rows: the rows that may be chosen.
        gain: "asymmetric" or "symmetric".
        greedy: whether to use the expected pass rates in place of drawn ones.
        strata: the strata, each with its share.
        quotas: returns for k the share of each stratum, (S,), or None without strata.
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

    def draw(self, k: int) -> Choice | None:
        """Choose the best `k` rows, of each stratum its share; return None if a draw of all rows is as fast."""
        if not self._serves(k):
            return None
        quotas = self._quotas(k)
        rows, pass_rate = self._candidates(k, quotas)
        chosen = best_places(rows, gain_of(pass_rate, self._gain), k, self._strata, quotas)
        rows, pass_rate = rows[chosen], pass_rate[chosen]
        a, b = self._rows.belief(rows)
        return rows, pass_rate, a / (a + b)

    def _serves(self, k: int) -> bool:
        """Return whether there are k free rows that this draw finds, and finds faster than a draw of all rows."""
        quotas = self._quotas(k)
        if quotas is not None and np.count_nonzero(quotas) * ROWS_OF_A_PART > self._rows.size:
            return False
        return bool(self._rows.num_fresh >= k or self._rows.size - self._rows.taken.size >= k)

    def _candidates(self, k: int, quotas: IntArray | None) -> Candidates:
        """Return J rows and their pass rates, with the best k among them.

        With `quotas`, (S,), they include the best of each stratum, and spares for strata that cannot fill their share.
        """
        nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return _concatenated(
            nothing, *(self._best_of(part, wanted) for part, wanted in self._parts(k, quotas) if wanted)
        )

    def _parts(self, k: int, quotas: IntArray | None) -> Iterator[tuple[Part, int]]:
        """Yield each part that gives rows, with the number of its best rows to give."""
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
        """Return free rows of a part that include its best k."""
        if self._greedy:
            return self._first_of(part, k)
        span = find_window(wanted_inside(k), self._gain, self._expected_density(part))
        if span is None:
            return self._others_of(part, np.empty(0, dtype=np.int64), NOWHERE)
        lo, hi = span
        rows, pass_rate = _concatenated(self._fresh_inside(part, span), self._visited_inside(part, span))
        may = self._rows.are_free(rows)
        rows, pass_rate = rows[may], pass_rate[may]
        if np.count_nonzero((lo <= pass_rate) & (pass_rate <= hi)) >= k:
            return rows, pass_rate
        return _concatenated((rows, pass_rate), self._others_of(part, rows, span))

    def _expected_density(self, part: Part) -> Callable[[FloatArray], FloatArray]:
        """Return a function from pass rates, (P,), to the expected density of rows there, in rows a unit of pass rate.

        The density affects only the speed. Too large a density leaves fewer than k rows inside the window, which is
        slow. So an estimate from a sample is lowered by four standard errors.
        """
        if 4 * part.num_fresh >= part.size or not part.visited.size:  # the fresh rows suffice
            return lambda p: np.full(p.shape, float(part.num_fresh))
        rows = part.visited[self._chance.integers(part.visited.size, size=SAMPLE)]
        (a, b), free = self._rows.belief(rows), self._rows.are_free(rows)

        def density(p: FloatArray) -> FloatArray:
            each = beta_density(p[:, None], a, b) * free
            least: FloatArray = each.mean(axis=1) - 4.0 * each.std(axis=1) / math.sqrt(rows.size)
            return part.num_fresh + part.visited.size * least

        return density

    def _fresh_inside(self, part: Part, span: Window) -> Candidates:
        """Draw the fresh rows with pass rates inside the window."""

        def pick(count: int) -> IntArray:
            return self._rows.distinct(count, part.rows, part.num_fresh)

        return self._thinned(part.num_fresh, 1.0, pick, span)

    def _visited_inside(self, part: Part, span: Window) -> Candidates:
        """Draw the visited rows with pass rates inside the window, or all visited rows if that is as fast."""

        def pick(count: int) -> IntArray:
            return part.visited[self._chance.choice(part.visited.size, count, replace=False)]

        most = self._rows.highest_density
        if most * (span[1] - span[0]) > MOST_PROPOSED:
            return part.visited, self._drawn(part.visited, *NOWHERE)
        return self._thinned(part.visited.size, most, pick, span)

    def _thinned(self, num_rows: int, most: float, pick: Callable[[int], IntArray], span: Window) -> Candidates:
        """Draw those of `num_rows` rows with pass rates inside the window; `most` bounds their densities there."""
        lo, hi = span
        rows = pick(int(self._chance.binomial(num_rows, most * (hi - lo))))
        pass_rate = self._chance.uniform(lo, hi, rows.size)
        kept = most * self._chance.random(rows.size) < beta_density(pass_rate, *self._rows.belief(rows))
        return rows[kept], pass_rate[kept]

    def _others_of(self, part: Part, but: IntArray, span: Window) -> Candidates:
        """Return all free rows of a part without those in `but`, with pass rates drawn outside the window."""
        every = np.arange(part.size) if part.rows is None else part.rows
        every = every[self._rows.are_free(every) & ~np.isin(every, but)]
        return every, self._drawn(every, *span)

    def _first_of(self, part: Part, k: int) -> Candidates:
        """Return the visited rows and the first k fresh rows, which are all alike, with expected pass rates."""
        enough = min(k + part.visited.size + self._rows.excluded.size, part.size)
        first = np.arange(enough) if part.rows is None else part.rows[:enough]
        rows = np.sort(
            np.concatenate([part.visited[self._rows.are_free(part.visited)], first[self._rows.are_fresh(first)][:k]])
        )
        a, b = self._rows.belief(rows)
        return rows, a / (a + b)

    def _drawn(self, rows: IntArray, lo: FloatArray | float, hi: FloatArray | float) -> FloatArray:
        """Draw the pass rates of the rows, (J,), outside [lo, hi]; return the expected ones if greedy."""
        a, b = self._rows.belief(rows)
        if self._greedy:
            return a / (a + b)
        pass_rate = self._chance.beta(a, b)
        while (inside := (lo <= pass_rate) & (pass_rate <= hi)).any():
            pass_rate[inside] = self._chance.beta(a[inside], b[inside])
        return pass_rate


def _concatenated(*parts: Candidates) -> Candidates:
    """Return the rows of all parts and their pass rates."""
    rows, pass_rates = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(pass_rates)
