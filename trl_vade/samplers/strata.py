"""Stratified choice: each stratum (task, domain, source) gets its share of a draw, filled with its best rows.

Without strata a domain with few of the best rows is rarely trained on.

Axis letters: N rows of the data set, S strata, k rows asked for, J rows that may be chosen.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_labels, check_same, check_share
from trl_vade.errors import ConfigurationError, abbreviated

from .top_k import largest

GOLDEN = 0x9E3779B97F4A7C15
"""2**64 times the fractional part of the golden ratio: its multiples spread most evenly modulo 2**64."""
PLASTIC = 0xC13FA9A902A6328F  # 2**64 divided by the plastic number: separates the sequences of different seeds


class Strata:
    """The rows of a data set by stratum, and the share of each stratum in a draw.

    Systematic sampling (Madow, 1949) divides k rows among strata of n_s rows, in whole numbers. With
    c_s = k (n_1 + ... + n_s) / N and an offset u in [0, 1):

        quota_s = floor(c_s + u) - floor(c_{s-1} + u)

    Each quota is k n_s / N rounded down or up, and the quotas sum to k. The offsets of successive draws are multiples
    of the golden ratio, modulo 1. Over T draws the quotas of a stratum then sum to T k n_s / N up to O(log T), also
    for a share far below 1 a draw (measured: fewer than four rows off in 200,000 draws). The seed and the number of
    the draw determine an offset, so a checkpoint need not hold it.

    Source: Madow (1949), On the theory of systematic sampling II, Ann. Math. Stat. 20, 333-354; no paper on GRPO.

    Args:
        stratum: (N,) the number of each row's stratum; every number in [0, S) occurs.
        shares: (S,) the share of each stratum in a draw, with the sum 1, in place of n_s / N. They are kept to 2**-30.
    """

    def __init__(self, stratum: IntArray, shares: FloatArray | None = None) -> None:
        self._num_strata = int(stratum.max()) + 1
        # numpy sorts integers of 8 and 16 bits by radix, in linear time.
        self._stratum = stratum.astype(np.min_scalar_type(self._num_strata))
        self._rows, self._ends = self.by_stratum(np.arange(stratum.size))
        self._bounds = self._ends
        if shares is not None:
            self._bounds = np.concatenate([[0], np.rint(np.cumsum(shares) * 2**30)]).astype(np.int64)

    @property
    def sizes(self) -> IntArray:
        """The number of rows of each stratum, (S,)."""
        return np.diff(self._ends)

    def of(self, rows: IntArray) -> IntArray:
        """Return the number of each row's stratum, (J,)."""
        return self._stratum[rows].astype(np.int64)

    def rows(self, stratum: int) -> IntArray:
        """Return the rows of a stratum, in ascending order. Do not write into the array."""
        return self._rows[self._ends[stratum] : self._ends[stratum + 1]]

    def count(self, rows: IntArray) -> IntArray:
        """Return the number of the given rows, (J,), in each stratum, (S,)."""
        return np.bincount(self._stratum[rows], minlength=self._num_strata)

    def by_stratum(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the places of `rows` sorted by stratum, (J,), and the bounds of the strata in them, (S + 1,)."""
        return np.argsort(self._stratum[rows], kind="stable"), np.concatenate([[0], np.cumsum(self.count(rows))])

    def quotas(self, k: int, *, seed: int, number: int) -> IntArray:
        """Return the number of rows that each stratum gives to a draw, (S,); they sum to `k`.

        A share counts all rows of a stratum, also those that may not be chosen now.

        Args:
            k: the rows of the draw, in [0, N].
            seed: the seed of the run, at least 0.
            number: the number of the draw, at least 0.
        """
        total = int(self._bounds[-1])  # N, or 2**30 with shares
        # c_s + u has the same floor as (k n + v) / N with v = floor(u N). Whole numbers cannot lose a row to rounding.
        # The offset is a Python integer, which cannot overflow; k n < 2**63 holds up to N = 3e9.
        offset = (seed * PLASTIC + number * GOLDEN) % 2**64 * total >> 64
        return np.diff((k * self._bounds + offset) // total).astype(np.int64)

    def best(self, rows: IntArray, value: FloatArray, quotas: IntArray) -> IntArray:
        """Return the places in `rows` of the best rows of each stratum, (k,), in descending order of value.

        Among equal values the lower row comes first. A resting row (a value below 0) never fills a quota. If the rows
        of a stratum rest or are excluded, the best rows of other strata take its open places. Resting rows are chosen
        only after all others, as without strata.

        Args:
            rows: (J,) distinct rows that may be chosen.
            value: (J,) finite values, at least 0 for rows that do not rest.
            quotas: (S,) rows wanted of each stratum; their sum k is in [1, J].
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
    """Return the places in `rows` of the `k` largest values, (k,); with strata, of the largest of each quota."""
    return largest(value, k) if strata is None or quotas is None else strata.best(rows, value, quotas)


def _best_of(places: IntArray, value: FloatArray, quota: int) -> IntArray:
    """Return those of the places, (J,), with the largest values, (min(quota, J),)."""
    return places[largest(value[places], min(quota, places.size))] if places.size else places


def strata_of(
    labels: ArrayLike | None, shares: Mapping[str, float] | None, num_samples: int, originals: IntArray | None
) -> tuple[Strata | None, dict[str, Any]]:
    """Return the strata of a sampler, and the settings that a saved state must share.

    Without strata there are no settings, as in states of early releases.

    Args:
        labels: (N,) the label of each row.
        shares: shares by label, as text.
        num_samples: N.
        originals: the rows whose problems are drawn; None: rows are drawn.

    Raises:
        ConfigurationError: the labels or the shares break their rules.
    """
    if labels is None:
        if shares is not None:
            raise ConfigurationError("stratify_shares is given without stratify. Pass the label of each row, too.")
        return None, {}
    stratum = check_labels("stratify", labels, num_samples)
    settings: dict[str, Any] = {"stratify": digest(stratum)}
    if originals is not None:
        labels = np.asarray(labels)[originals]
        stratum = check_labels("stratify", labels, originals.size)
    if shares is None:
        return Strata(stratum), settings
    settings["stratify_shares"] = {name: float(share) for name, share in shares.items()}
    return Strata(stratum, shares_of(labels, shares)), settings


def shares_of(labels: ArrayLike, named: Mapping[str, float]) -> FloatArray:
    """Return the share of each stratum in a draw, (S,), in the order of the sorted distinct labels.

    Args:
        labels: (N,) the label of each row.
        named: shares in [0, 1] by label, as text. The other labels divide the rest by their numbers of rows.

    Raises:
        ConfigurationError: a label is none of the rows', or the shares do not sum to 1.
    """
    values, counts = np.unique(labels, return_counts=True)
    texts = [str(value) for value in values]
    unknown = [label for label in named if label not in texts]
    shares = np.array([check_share("A share of stratify_shares", named.get(text, 0.0)) for text in texts])
    others = np.array([text not in named for text in texts]) * counts
    rest = 1.0 - shares.sum()
    if unknown or rest < -1e-9 or (rest > 1e-9 and not others.any()):
        problem = (
            f"{', '.join(map(repr, unknown))} is no label of the rows" if unknown else f"the sum is {1.0 - rest:g}"
        )
        raise ConfigurationError(
            f"The shares of strata (vade_strata_shares) are {abbreviated(dict(named))}, and {problem}. The labels are "
            f"{abbreviated(texts)}. Name only these. The shares must sum to 1, or to less if labels without a share "
            "are left for the rest."
        )
    filled: FloatArray = shares + max(rest, 0.0) * others / max(others.sum(), 1)
    return filled


def digest(stratum: IntArray) -> str:
    """Return the SHA-256 of the strata of N rows, which a saved state holds in their place."""
    return hashlib.sha256(stratum.tobytes()).hexdigest()


OPTIONAL_SETTINGS = ("stratify", "stratify_shares", "variants", "variant_groups", "variant_match")


def check_same_strata(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `SnapshotMismatchError` if two states of a sampler differ in strata, their shares or variants.

    A state without these lacks the settings. `check_fields` would report that as a missing field and advise another
    release.
    """
    theirs = saved.get("settings")
    if isinstance(theirs, Mapping):
        for name in OPTIONAL_SETTINGS:
            check_same("sampler", {name: theirs.get(name)}, {name: here.get(name)})
