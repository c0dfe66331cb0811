"""An estimate of the useful groups that an even draw of the rows would give: the baseline of a run."""

import numpy as np

from trl_vade.checks import FloatArray
from trl_vade.samplers.information import mixed_group_probability, spread_group_probability
from trl_vade.samplers.posterior import BetaPosterior

FEWEST_ROWS = 32  # for a fit
EVIDENCE = 1.0  # smallest alpha + beta of a row that a fit uses
LOWEST_MEAN, HIGHEST_MEAN = 0.05, 0.95
LOWEST_STRENGTH, HIGHEST_STRENGTH = 0.5, 8.0
"""Bounds of the mean a / (a + b) and of the strength a + b; Beta(1, 1) has 1/2 and 2."""


def even_draw_ratio(posterior: BetaPosterior, num_generations: int, *, spreads: bool = False) -> float:
    """Estimate the share of groups with a gradient if each row were chosen equally often.

    It is the mean over all rows. The belief about each row starts from a Beta distribution fitted to the visited rows:
    from Beta(1, 1) the estimate is too high. Below 32 visited rows it starts from Beta(1, 1) nevertheless.

    Args:
        posterior: the belief about the N rows.
        num_generations: G, the completions of a group.
        spreads: whether the belief is about spreads and not about pass rates.
    """
    alpha, beta = posterior.visited_counts()
    evident = alpha + beta >= EVIDENCE
    a, b = fit_prior(alpha[evident], beta[evident]) or (1.0, 1.0)
    unseen = posterior.num_samples - len(alpha)
    of_gradients = spread_group_probability if spreads else mixed_group_probability
    ratios = of_gradients(np.append(alpha, 0.0) + a, np.append(beta, 0.0) + b, num_generations)
    return float((ratios[:-1].sum() + unseen * ratios[-1]) / posterior.num_samples)


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
