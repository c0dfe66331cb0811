"""The belief about variants without evidence: that of their originals, shifted by kind.

Axis letters: N rows of the data set, V visited rows, P pairs, S kinds.
"""

import numpy as np

from trl_vade.checks import FloatArray

from .posterior import BetaPosterior
from .prior import RowPrior
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


def variant_prior(posterior: BetaPosterior, variants: VariantRows) -> RowPrior:
    """Return the belief Beta(a, b) about all N rows: Beta(1, 1) for an original, that of its original for a variant.

    A variant of kind s has, with the expected pass rate m of its original,

        a / (a + b) = sigmoid(logit(m) + shift_s)

    Both means stay in [0.05, 0.95]. The strength a + b is at most that of the belief about the original: 2 for an
    original without evidence. Without pairs a variant of such an original has Beta(1, 1), too.

    The belief depends on the counts alone, so a checkpoint need not hold it.
    """
    alpha, beta = (counts[variants.of] for counts in posterior.counts())
    odds = np.clip(_odds(alpha, beta) * np.exp(variant_shifts(posterior, variants))[variants.kind], *_ODDS)
    strength, is_original = np.minimum(STRENGTH, alpha + beta + 2.0), variants.kind == 0
    a = np.where(is_original, 1.0, strength * odds / (1.0 + odds))
    return RowPrior(a, np.where(is_original, 1.0, strength - a))


def variant_shifts(posterior: BetaPosterior, variants: VariantRows) -> FloatArray:
    """Return the shift of each kind in logits, (S,), fitted to all pairs of a variant and its original with evidence.

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
    return shift


def _odds(alpha: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the odds m / (1 - m) of the means of Beta(alpha + 1, beta + 1), within the bounds of a mean."""
    odds: FloatArray = np.clip((alpha + 1.0) / (beta + 1.0), *_ODDS)
    return odds
