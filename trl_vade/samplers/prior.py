"""The belief about rows without evidence: Beta(1, 1). Another is in `prompt_prior`.

Axis letters: N rows of the data set, V rows with evidence, S strata, K given rows.
"""

from typing import Protocol

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.errors import ConfigurationError, abbreviated

PRIORS = ("flat", "prompts")


def check_prior_kind(kind: str) -> None:
    """Raise `ConfigurationError` unless `kind` names a prior."""
    if kind not in PRIORS:
        raise ConfigurationError(
            f"prior is {abbreviated(kind)}; it must be 'flat' (Beta(1, 1), as in the paper) or 'prompts' (a "
            "regression on the words of the prompts)."
        )


class Prior(Protocol):
    """The belief Beta(a, b) about each row without evidence."""

    def of(self, rows: IntArray | None) -> tuple[FloatArray | float, FloatArray | float]:
        """Return a and b of the given rows, (K,) each, or of all rows, (N,) each; scalars if all rows are alike."""

    def sum_of_fresh(
        self, num_samples: int, visited: IntArray, stratum: IntArray | None, num_strata: int
    ) -> FloatArray:
        """Return the sum of the means of the rows without evidence in each stratum, (S,), or in all rows, (1,).

        Args:
            num_samples: N.
            visited: (V,) the rows with evidence.
            stratum: (N,) the number of each row's stratum; None: one stratum.
            num_strata: S.
        """


class FlatPrior:
    """Beta(1, 1) for every row."""

    def of(self, rows: IntArray | None) -> tuple[float, float]:
        """Return 1 and 1."""
        return 1.0, 1.0

    def sum_of_fresh(
        self, num_samples: int, visited: IntArray, stratum: IntArray | None, num_strata: int
    ) -> FloatArray:
        """Return half of the number of rows without evidence; see `Prior.sum_of_fresh`."""
        if stratum is None:
            return np.array([0.5 * (num_samples - visited.size)])
        every, seen = (np.bincount(of, minlength=num_strata) for of in (stratum, stratum[visited]))
        return (0.5 * (every - seen)).astype(np.float64)


FLAT = FlatPrior()


class RowPrior:
    """The belief Beta(a, b) about each row: `a` and `b`, (N,) each."""

    def __init__(self, a: FloatArray, b: FloatArray) -> None:
        self._a, self._b = a, b

    def of(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the given rows, (K,) each, or of all rows, (N,) each. Do not write into the arrays."""
        return (self._a, self._b) if rows is None else (self._a[rows], self._b[rows])

    def sum_of_fresh(
        self, num_samples: int, visited: IntArray, stratum: IntArray | None, num_strata: int
    ) -> FloatArray:
        """Return the sum of the means of the rows without evidence; see `Prior.sum_of_fresh`."""
        a, b = self.of(None)
        mean = a / (a + b)
        mean[visited] = 0.0
        stratum = np.zeros(num_samples, dtype=np.int64) if stratum is None else stratum
        return np.bincount(stratum, mean, num_strata).astype(np.float64)
