"""Stratified choice: each stratum (task, domain, source) has its share of a draw, and its best rows within it.

Without it the best rows of all are chosen, and a domain whose rows are seldom the best is hardly ever trained on.

Axis letters: N rows of the data set, S strata, k rows asked for, J rows that may be chosen.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_same

from .top_k import largest

GOLDEN = 0x9E3779B97F4A7C15
"""2**64 times the golden ratio's fractional part: its multiples, modulo 2**64, are the most evenly spread ones."""
PLASTIC = 0xC13FA9A902A6328F
"""2**64 divided by the plastic number: seeds begin apart from each other, and not on each other's sequence."""


class Strata:
    """The rows of a data set by their stratum, and what a draw takes of each.

    The shares of k rows among strata of n_s rows are whole numbers by systematic sampling (Madow, 1949): with
    c_s = k (n_1 + ... + n_s) / N and an offset u in [0, 1)

        quota_s = floor(c_s + u) - floor(c_{s-1} + u)

    Each quota is k n_s / N rounded down or up, and they sum to k. The offsets of successive draws are the multiples of
    the golden ratio, modulo 1. Over T draws of one size a stratum's quotas then sum to T k n_s / N up to O(log T),
    also where its share of one draw is far below 1 (seen: fewer than four rows away in 200,000 draws). An offset is a
    function of the seed and the number of the draw, so a resume needs nothing to be saved.

    Source: Madow (1949), On the theory of systematic sampling II, Ann. Math. Stat. 20, 333-354; no paper on GRPO.

    Args:
        stratum: (N,) number of each row's stratum, from 0; each of [0, S) occurs.
    """

    def __init__(self, stratum: IntArray) -> None:
        self._num_strata = int(stratum.max()) + 1
        # numpy sorts 8 and 16 bits by radix, in linear time, and what it sorts here is always (J,) of these.
        self._stratum = stratum.astype(np.min_scalar_type(self._num_strata))
        self._rows, self._ends = self.by_stratum(np.arange(stratum.size))

    @property
    def sizes(self) -> IntArray:
        """(S,) rows of each stratum."""
        return np.diff(self._ends)

    def of(self, rows: IntArray) -> IntArray:
        """(J,) the number of each row's stratum."""
        return self._stratum[rows].astype(np.int64)

    def rows(self, stratum: int) -> IntArray:
        """The rows of a stratum, in rising order; not to be written into."""
        return self._rows[self._ends[stratum] : self._ends[stratum + 1]]

    def count(self, rows: IntArray) -> IntArray:
        """(S,) how many of the rows, (J,), are of each stratum."""
        return np.bincount(self._stratum[rows], minlength=self._num_strata)

    def by_stratum(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return (J,) the places of `rows` with those of a stratum side by side, in the order in which they come, and
        (S + 1,) where each stratum begins and ends."""
        return np.argsort(self._stratum[rows], kind="stable"), np.concatenate([[0], np.cumsum(self.count(rows))])

    def quotas(self, k: int, *, seed: int, number: int) -> IntArray:
        """Return (S,) how many of `k` rows each stratum is to give in draw `number` of `seed`. They sum to `k`.

        The share is that of the data set's rows, whatever of them may be chosen.

        Args:
            k: a whole number in [0, N].
            seed, number: whole numbers of at least 0.
        """
        num_samples = self._stratum.size
        # c_s + u has the same floor as (k n + v) / N with v = floor(u N): whole numbers, so that no rounding of a
        # float can lose a row. (Python's are as long as they need to be; k n < 2**63 for N up to three thousand
        # million.)
        offset = (seed * PLASTIC + number * GOLDEN) % 2**64 * num_samples >> 64
        return np.diff((k * self._ends + offset) // num_samples).astype(np.int64)

    def best(self, rows: IntArray, value: FloatArray, quotas: IntArray) -> IntArray:
        """Return (k,) places in `rows`: of each stratum the best of its quota, in falling order of value overall, of
        equal values the lower row first.

        A row that rests (a value below 0) is not chosen for a quota: the cooldown goes before the share. The places
        that a stratum leaves open, because its rows rest or are left out, go to the best rows of the others; so a row
        that rests is let in only where all others are taken, as without strata. (A cooldown of a part of an epoch
        keeps about that part of each stratum from being chosen, whatever its size: few places stay open.)

        Args:
            rows: (J,) distinct rows that may be chosen.
            value: (J,) finite; at least 0 for rows that do not rest.
            quotas: (S,) rows wanted of each stratum; their sum, k, is in [1, J].
        """
        k = int(quotas.sum())
        places, ends = self.by_stratum(rows)
        giving = [(int(quotas[one]), places[ends[one] : ends[one + 1]]) for one in np.flatnonzero(quotas).tolist()]
        chosen = np.concatenate([_best_of(here[value[here] >= 0], value, quota) for quota, here in giving])
        if chosen.size < k:
            left = value.copy()
            left[chosen] = -np.inf
            chosen = np.concatenate([chosen, largest(left, k - chosen.size)])
        return chosen[np.lexsort((rows[chosen], -value[chosen]))]


def best_places(rows: IntArray, value: FloatArray, k: int, strata: Strata | None, quotas: IntArray | None) -> IntArray:
    """Return (k,) places in `rows` of those with the largest `value`, of all or, with strata, of each one's quota."""
    return largest(value, k) if strata is None or quotas is None else strata.best(rows, value, quotas)


def _best_of(places: IntArray, value: FloatArray, quota: int) -> IntArray:
    """(min(quota, J),) of the places, (J,), those with the largest values."""
    return places[largest(value[places], min(quota, places.size))] if places.size else places


def digest(stratum: IntArray) -> str:
    """Return what stands for the strata of N rows in a saved state."""
    return hashlib.sha256(stratum.tobytes()).hexdigest()


def check_same_strata(saved: Any, here: Mapping[str, Any]) -> None:
    """Raise `SnapshotMismatchError`, naming both sides, where one of two states of a sampler is stratified alone.

    The setting `stratify` is not there where there are no strata. Compared as any other, it would be a field too many
    or too few, and the message would advise another release.
    """
    theirs = saved.get("settings") if isinstance(saved, Mapping) and saved.get("kind") == here["kind"] else None
    if isinstance(theirs, Mapping):
        check_same("sampler", {"stratify": theirs.get("stratify")}, {"stratify": here["settings"].get("stratify")})
