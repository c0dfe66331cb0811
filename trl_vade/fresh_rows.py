"""The best of many rows of which nothing is known: what a Thompson draw of a huge pool needs of them, and no more.

Under the flat prior a row without evidence has p ~ U(0, 1), independent of all others, and no such row is told from
another. Of n of them a batch of k can hold only the k with the largest gains, and these may be any k rows. So it is
enough to draw the pass rates that can be among the best, and then the rows that have them: O(k), where a pass rate for
each row is O(n). The distribution is the same, exactly (up to the rounding of the gains); the random numbers are not.

The argument. Both gains rise to one mode and fall. A window [lo, hi] about it whose ends have equal gains therefore
holds the larger gains: any p inside has a larger one than any p outside. m ~ Binomial(n, hi - lo) of the n are inside.

    m >= k    the best k are inside; given m, those inside are m independent U(lo, hi)
    m <  k    the m inside, and the best k - m of the n - m outside, which are independent and uniform there

(To draw all n anew where m < k would be wrong: that case would then hold draws with m >= k, too.)

Source: order statistics of a sample, split by whether they fall into a set; no paper is followed. Axis letters: N rows
of the data set, n of them fresh, k rows asked for, J >= min(k, n) returned.
"""

import math

import numpy as np
from numpy.typing import NDArray

from .checks import FloatArray, IntArray

BoolArray = NDArray[np.bool_]
Candidates = tuple[IntArray, FloatArray, FloatArray]  # (J,) each: rows, pass rates drawn for them, expected ones

# From so many fresh rows on, a sampler draws in this way. It is faster from about 2,000 on (at 100,000: 0.3 ms for
# 13 ms). The bound is higher so that the choices for smaller data sets stay those of earlier releases: milliseconds
# are nothing beside the rollouts of a batch.
FEW = 100_000


def window(width: float, gain: str) -> tuple[float, float]:
    """Return (lo, hi), pass rates with hi - lo = `width` and equal gains: gains inside are larger than those outside.

    Args:
        width: w in (0, 1].
        gain: "asymmetric" p(1 - p)^2 or "symmetric" p(1 - p).
    """
    if gain == "symmetric":
        lo = (1.0 - width) / 2.0
    else:
        # lo (1 - lo)^2 = hi (1 - hi)^2 at hi = lo + w, divided by w: 3 lo^2 + (3w - 4) lo + (1 - w)^2 = 0. Its lower
        # root goes from 1/3, the mode, at w = 0 to 0 at w = 1.
        lo = (4.0 - 3.0 * width - math.sqrt(4.0 - 3.0 * width * width)) / 6.0
    return lo, lo + width


def fresh_draw(num_fresh: int, k: int, gain: str, generator: np.random.Generator) -> FloatArray:
    """Return (J,) pass rates in [0, 1]: some of `num_fresh` independent U(0, 1), among them those of the k best gains.

    All are returned where there are no more than k. J is about k + 8 sqrt(k) + 32 where k is a small part of n.
    """
    k = min(k, num_fresh)
    if k == 0:
        return np.empty(0)
    # Eight deviations more than k are expected inside, so fewer than k happen about once in 1e14 draws. That costs
    # time and is as right; see `_window_draw`.
    width = (k + 8.0 * math.sqrt(k) + 32.0) / num_fresh
    return generator.random(num_fresh) if width > 0.5 else _window_draw(num_fresh, k, width, gain, generator)


def _window_draw(num_fresh: int, k: int, width: float, gain: str, generator: np.random.Generator) -> FloatArray:
    """`fresh_draw` with a window of the width given; (m,) pass rates inside, or all (n,) where m < k."""
    lo, hi = window(width, gain)
    num_inside = int(generator.binomial(num_fresh, width))
    inside = generator.uniform(lo, hi, num_inside)
    if num_inside >= k:
        return inside
    outside = generator.uniform(0.0, 1.0 - width, num_fresh - num_inside)  # as if the window were cut out
    return np.concatenate([inside, np.where(outside < lo, outside, outside + width)])


def distinct_fresh(count: int, fresh: BoolArray, generator: np.random.Generator) -> IntArray:
    """Return (count,) distinct rows of those that are `fresh`, (N,), every ordered choice being equally likely.

    At most as many may be asked for as there are. O(count), apart from a look at `fresh`, where fresh rows are common.
    """
    num_samples, num_fresh = fresh.size, int(np.count_nonzero(fresh))
    if 2 * count > num_fresh or 4 * num_fresh < num_samples:
        return generator.choice(np.flatnonzero(fresh), count, replace=False).astype(np.int64)
    # Rows are drawn with replacement, and those that are not fresh or came before are dropped: what is left, in the
    # order of drawing, is a uniform choice without replacement.
    rows = np.empty(0, dtype=np.int64)
    while rows.size < count:
        more = generator.integers(num_samples, size=2 * count + 16)
        rows = np.concatenate([rows, more[fresh[more]]])
        _, first = np.unique(rows, return_index=True)
        rows = rows[np.sort(first)]
    return rows[:count]
