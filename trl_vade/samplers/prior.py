"""The pass rates of rows never seen, guessed from those of the rows that were: a beta-binomial prior.

Axis letters: N rows of the data set, V rows with evidence.
"""

from dataclasses import dataclass

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.errors import ConfigurationError, abbreviated

PRIORS = ("flat", "learned")

FEWEST_ROWS = 32
"""Rows with evidence that a fit needs; with fewer it is Beta(1, 1), or, for a stratum, the fit of all rows."""
EVIDENCE = 1.0
"""Rows with fewer effective counts than this say next to nothing, and are left out."""
LOWEST_MEAN, HIGHEST_MEAN = 0.05, 0.95
LOWEST_STRENGTH, HIGHEST_STRENGTH = 0.5, 8.0
"""Bounds of the mean a / (a + b) and of the strength a + b; Beta(1, 1) has 1/2 and 2. A weaker prior would take the
first group for the whole truth, a stronger one would hold against several groups."""


def check_prior_kind(kind: str) -> None:
    """Raise `ConfigurationError` unless `kind` names a prior."""
    if kind not in ("flat", "learned"):
        raise ConfigurationError(
            f"prior is {abbreviated(kind)}; it must be 'flat', Beta(1, 1) as in the paper, or 'learned', fitted to "
            "the rows seen so far. Set one of the two."
        )


@dataclass(frozen=True)
class Prior:
    """The belief Beta(a, b) about each row without evidence: the same for all rows of a stratum."""

    table: FloatArray  # (S, 2) a and b of each stratum
    stratum: IntArray | None = None  # (N,) number of each row's stratum, from 0; None: all rows are of one

    def of(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the rows named, (K,) each, of all, (N,), or () where there is one stratum."""
        if self.stratum is None:
            return self.table[0, 0], self.table[0, 1]
        stratum = self.stratum if rows is None else self.stratum[rows]
        return self.table[stratum, 0], self.table[stratum, 1]


FLAT = Prior(np.ones((1, 2)))
"""Beta(1, 1) for every row."""


def learned_prior(
    alpha: FloatArray, beta: FloatArray, visited: IntArray, strata: IntArray | None = None, num_strata: int = 1
) -> Prior:
    """Return the prior fitted to the rows of which something is known, for each stratum or for all rows.

    A pure function of the counts, so a run that is resumed needs nothing but these.

    Args:
        alpha, beta: (V,) effective counts of the visited rows.
        visited: (V,) those rows.
        strata: (N,) number of each row's stratum, from 0.
        num_strata: S.
    """
    evident = alpha + beta >= EVIDENCE
    whole = fit_prior(alpha[evident], beta[evident]) or (1.0, 1.0)
    if strata is None:
        return Prior(np.array([whole]))
    table, stratum = np.empty((num_strata, 2)), strata[visited]
    for number in range(num_strata):
        rows = evident & (stratum == number)
        table[number] = fit_prior(alpha[rows], beta[rows]) or whole
    return Prior(table, strata)


def fit_prior(alpha: FloatArray, beta: FloatArray) -> tuple[float, float] | None:
    """Fit Beta(a, b) to the counts of V rows by moments, or return None where V is below `FEWEST_ROWS`.

    With n_i = alpha_i + beta_i and m the pooled pass rate, weighted squares of alpha_i / n_i about m have the mean

        m (1 - m) ((V - 1) + rho (sum n_i - sum n_i^2 / sum n_i - (V - 1)))    rho = 1 / (a + b + 1)

    which is solved for rho. m and a + b are then kept within the bounds of this module.

    Source: Kleinman (1973), Proportions with extraneous variance, JASA 68, 46-54, with weights n_i.

    Args:
        alpha, beta: (V,) counts, alpha_i + beta_i > 0.
    """
    if alpha.size < FEWEST_ROWS:
        return None
    n = alpha + beta
    mean = float(np.clip(alpha.sum() / n.sum(), LOWEST_MEAN, HIGHEST_MEAN))
    squares = float((n * (alpha / n - mean) ** 2).sum()) / (mean * (1.0 - mean))
    degrees = n.size - 1
    room = float(n.sum() - (n**2).sum() / n.sum()) - degrees
    rho = (squares - degrees) / room if room > 0 else 0.0
    strength = 1.0 / rho - 1.0 if rho > 0 else HIGHEST_STRENGTH
    strength = float(np.clip(strength, LOWEST_STRENGTH, HIGHEST_STRENGTH))
    return mean * strength, (1.0 - mean) * strength
