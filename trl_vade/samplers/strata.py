"""The best rows of a draw: of all rows, or of each stratum (task, domain, source) its share.

Axis letters: N rows of the data set, S strata, k rows asked for, J rows that may be chosen.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_labels

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 times the golden ratio's fractional part: its multiples spread most evenly
PLASTIC = 0xC13FA9A902A6328F  # 2**64 divided by the plastic number: separates the sequences of different seeds


def largest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the `k` largest `values`, (N,) without NaN, in falling order; a tie goes by the index."""
    if k == 0:
        return np.empty(0, dtype=np.int64)
    # np.argpartition would take an arbitrary part of the values that tie at the threshold.
    reach = np.flatnonzero(values >= np.partition(values, values.size - k)[values.size - k])
    return reach[np.argsort(-values[reach], kind="stable")[:k]]


class Strata:
    """The rows of a data set by stratum. Each stratum gets a share of a draw that is its share of the rows.

    Systematic sampling divides k rows among strata of n_s rows. With c_s = k (n_1 + ... + n_s) / N and an offset u:

        quota_s = floor(c_s + u) - floor(c_{s-1} + u)

    The offsets of successive draws are multiples of the golden ratio, modulo 1. Over T draws the quotas of a stratum
    then sum to T k n_s / N up to O(log T).
    Source: Madow (1949), On the theory of systematic sampling II, Ann. Math. Stat. 20, 333-354; no paper on GRPO.

    `labels`, (N,), are texts or whole numbers. `digest` is their SHA-256, which a saved state holds in their place.
    """

    def __init__(self, labels: ArrayLike, num_samples: int) -> None:
        self._stratum = check_labels("stratify", labels, num_samples)
        self.digest = hashlib.sha256(self._stratum.tobytes()).hexdigest()
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(self._stratum))])

    def quotas(self, k: int, *, seed: int, number: int) -> IntArray:
        """Return the number of rows that each stratum gives to draw `number` of `k` rows, (S,); they sum to `k`."""
        total = int(self._ends[-1])
        # c_s + u has the same floor as (k n + v) / N with v = floor(u N), in whole numbers, which do not round.
        offset = (seed * PLASTIC + number * GOLDEN) % 2**64 * total >> 64
        return np.diff((k * self._ends + offset) // total).astype(np.int64)

    def best(self, rows: IntArray, value: FloatArray, quotas: IntArray) -> IntArray:
        """Return the places in `rows` of the best rows of each stratum, (k,), in descending order of value.

        Among equal values the lower row comes first. A resting row (a value below 0) never fills a quota: the best
        rows of other strata take its open places. Resting rows are chosen only after all others.
        `rows`, (J,), are distinct and ascend; `value`, (J,), is finite; `quotas`, (S,), sum to k in [1, J].
        """
        order, k = largest(value, value.size), int(quotas.sum())
        stratum = self._stratum[rows[order]]
        by_stratum = np.argsort(stratum, kind="stable")  # in each stratum the best first
        first = np.searchsorted(stratum[by_stratum], np.arange(quotas.size))
        rank = np.empty(order.size, dtype=np.int64)
        rank[by_stratum] = np.arange(order.size) - first[stratum[by_stratum]]
        filled = (rank < quotas[stratum]) & (value[order] >= 0)
        places = np.concatenate([np.flatnonzero(filled), np.flatnonzero(~filled)])[:k]
        best: IntArray = order[np.sort(places)]
        return best
