"""The belief about variants without evidence: that of their originals, shifted by kind.

Axis letters: N rows of the data set, V visited rows, P pairs, S kinds, K given rows.
"""

from dataclasses import dataclass

import numpy as np

from trl_vade.checks import FloatArray, IntArray

from .posterior import BetaPosterior
from .variants import VariantRows

EVIDENCE = 1.0  # smallest alpha + beta of a row that a fit uses
LOWEST_MEAN, HIGHEST_MEAN = 0.05, 0.95
STRENGTH = 3.0
"""The largest a + b of a variant. Beta(1, 1) has 2, and a group of eight completions soon overrules 3."""
RIDGE = 4.0
"""The precision of the belief N(0, 1 / RIDGE) about a shift. It weighs as much as 16 completions at the pass rate
1/2."""
MOST_STEPS, LARGEST_STEP, TOLERANCE = 50, 1.0, 1e-9
"""Of Newton's method: the number of steps, and the largest and the smallest change of a shift. The log-likelihood is
concave. From far away a full step may overshoot, so a step is cut."""
_ODDS = LOWEST_MEAN / (1.0 - LOWEST_MEAN), HIGHEST_MEAN / (1.0 - HIGHEST_MEAN)


@dataclass(frozen=True, eq=False)
class VariantPrior:
    """The belief Beta(a, b) about every row: Beta(1, 1) for an original, that of its original for a variant.

    A variant of kind s has

        a / (a + b) = sigmoid(logit(m) + shift_s)

    with the expected pass rate m of its original, as the posterior has it when `of` is called. Both means stay in
    [0.05, 0.95]. The strength a + b is at most that of the belief about the original: 2 for an
    original without evidence. Without pairs a variant of such an original has Beta(1, 1), too.

    The belief depends on the counts alone, so a checkpoint need not hold it.
    """

    posterior: BetaPosterior
    variants: VariantRows
    shift: FloatArray  # (S,) in logits; 0 for originals

    def of(self, rows: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """Return a and b of the given rows, (K,) each, or of all rows, (N,) each."""
        if rows is None:
            of, kind = self.variants.of, self.variants.kind
            alpha, beta = (counts[of] for counts in self.posterior.counts())
        else:
            of, kind = self.variants.of[rows], self.variants.kind[rows]
            alpha, beta = self.posterior.counts(of)
        odds = np.clip(_odds(alpha, beta) * np.exp(self.shift)[kind], *_ODDS)
        strength = np.minimum(STRENGTH, alpha + beta + 2.0)
        a = np.where(kind == 0, 1.0, strength * odds / (1.0 + odds))
        return a, np.where(kind == 0, 1.0, strength - a)

    def sum_of_fresh(
        self, num_samples: int, visited: IntArray, stratum: IntArray | None, num_strata: int
    ) -> FloatArray:
        """Return the sum of the means of the rows without evidence; see `Prior.sum_of_fresh`."""
        a, b = self.of(None)
        mean = a / (a + b)
        mean[visited] = 0.0
        stratum = np.zeros(num_samples, dtype=np.int64) if stratum is None else stratum
        return np.bincount(stratum, mean, num_strata).astype(np.float64)


def variant_prior(posterior: BetaPosterior, variants: VariantRows) -> VariantPrior:
    """Return the prior whose shifts are fitted to all pairs of a variant and its original that have evidence.

    With alpha_i successes and n_i trials of the variant in pair i, and m_i the expected pass rate of its original, the
    shifts maximise

        sum_i log Binomial(alpha_i; n_i, sigmoid(logit(m_i) + shift_(s_i))) - RIDGE / 2 sum_s shift_s^2

    A kind with few pairs so stays close to 0.
    """
    visited, num_kinds = posterior.visited, len(variants.kinds)
    alpha, beta = posterior.visited_counts()
    n = alpha + beta
    evident = np.flatnonzero(n >= EVIDENCE)  # places among the visited rows, as `pair` and `original` below
    of = variants.of[visited[evident]]
    place = np.minimum(np.searchsorted(visited[evident], of), evident.size - 1)
    paired = (variants.kind[visited[evident]] > 0) & (visited[evident][place] == of)
    pair, original = evident[paired], evident[place[paired]]
    alpha_pair, n_pair, kind = alpha[pair], n[pair], variants.kind[visited[pair]]
    logit = np.log(_odds(alpha[original], beta[original]))
    shift = np.zeros(num_kinds)
    for _ in range(MOST_STEPS):
        p = 1.0 / (1.0 + np.exp(-logit - shift[kind]))
        slope = np.bincount(kind, alpha_pair - n_pair * p, num_kinds) - RIDGE * shift
        curvature = np.bincount(kind, n_pair * p * (1.0 - p), num_kinds) + RIDGE
        step = np.clip(slope / curvature, -LARGEST_STEP, LARGEST_STEP)
        shift += step
        if np.abs(step).max() < TOLERANCE:
            break
    return VariantPrior(posterior, variants, shift)


def _odds(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the odds m / (1 - m) of the means of Beta(alpha + 1, beta + 1), within the bounds of a mean."""
    odds: FloatArray = np.clip((alpha + 1.0) / (beta + 1.0), *_ODDS)
    return odds
