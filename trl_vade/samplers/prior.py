"""The belief about rows without evidence: Beta(1, 1), or a beta-binomial prior fitted to the visited rows.

The belief about variants is in `variant_prior`.

Axis letters: N rows of the data set, V rows with evidence.
"""

from dataclasses import dataclass

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.errors import ConfigurationError, abbreviated

PRIORS = ("flat", "learned", "variants")

FEWEST_ROWS = 32
"""Smallest number of rows for a fit. Below it all rows use Beta(1, 1), and a stratum the fit of all rows."""
EVIDENCE = 1.0  # smallest alpha + beta of a row that a fit uses
LOWEST_MEAN, HIGHEST_MEAN = 0.05, 0.95
LOWEST_STRENGTH, HIGHEST_STRENGTH = 0.5, 8.0
"""Bounds of the mean a / (a + b) and of the strength a + b; Beta(1, 1) has 1/2 and 2. The first group of a row would
overrule a weaker prior at once. A stronger prior would outweigh several groups."""


def check_prior_kind(kind: str) -> None:
    """Raise `ConfigurationError` unless `kind` names a prior."""
    if kind not in PRIORS:
        raise ConfigurationError(
            f"prior is {abbreviated(kind)}; it must be 'flat' (Beta(1, 1), as in the paper), 'learned' (fitted to the "
            "rows seen so far) or 'variants' (for variants: their original's belief, shifted by kind)."
        )


@dataclass(frozen=True)
class Prior:
    """The belief Beta(a, b) about rows without evidence, equal for all rows of a stratum."""

    table: FloatArray  # (S, 2) a and b of each stratum
    stratum: IntArray | None = None  # (N,) the number of each row's stratum, from 0; None: one stratum

    def of(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the given rows, (K,) each, or of all rows, (N,) each; of one stratum two scalars."""
        if self.stratum is None:
            return self.table[0, 0], self.table[0, 1]
        stratum = self.stratum if rows is None else self.stratum[rows]
        return self.table[stratum, 0], self.table[stratum, 1]

    def sum_of_fresh(
        self, num_samples: int, visited: IntArray, stratum: IntArray | None, num_strata: int
    ) -> FloatArray:
        """Return the sum of the means of the rows without evidence in each stratum, (S,), or in all rows, (1,).

        Args:
            num_samples: N.
            visited: (V,) the rows with evidence.
            stratum: (N,) the number of each row's stratum, not that of this prior; None: one stratum.
            num_strata: S.
        """
        kinds = len(self.table)
        kind = None if stratum is None else stratum * kinds  # a pair: this stratum and the prior's
        if self.stratum is not None:
            kind = self.stratum + (0 if kind is None else kind)
        if kind is None:
            fresh = np.array([num_samples - visited.size])
        else:
            every, seen = (np.bincount(of, minlength=num_strata * kinds) for of in (kind, kind[visited]))
            fresh = every - seen
        total: FloatArray = fresh.reshape(num_strata, kinds) @ (self.table[:, 0] / self.table.sum(axis=1))
        return total


FLAT = Prior(np.ones((1, 2)))  # Beta(1, 1) for every row


def learned_prior(
    alpha: FloatArray, beta: FloatArray, visited: IntArray, strata: IntArray | None = None, num_strata: int = 1
) -> Prior:
    """Return the prior fitted to the visited rows, for each stratum or for all rows.

    The prior depends on the counts alone, so a checkpoint need not hold it.

    Args:
        alpha: (V,) effective counts of successes of the visited rows.
        beta: (V,) effective counts of failures.
        visited: (V,) the visited rows.
        strata: (N,) the number of each row's stratum, from 0.
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
    """Fit Beta(a, b) to the counts of V rows by moments; return None if V is below `FEWEST_ROWS`.

    With n_i = alpha_i + beta_i and m the pooled pass rate, weighted squares of alpha_i / n_i about m have the mean

        m (1 - m) ((V - 1) + rho (sum n_i - sum n_i^2 / sum n_i - (V - 1)))    rho = 1 / (a + b + 1)

    The fit solves this for rho and clips m and a + b to the bounds of this module.

    Source: Kleinman (1973), Proportions with extraneous variance, JASA 68, 46-54, with weights n_i.

    Args:
        alpha: (V,) counts of successes.
        beta: (V,) counts of failures, alpha_i + beta_i > 0.
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
