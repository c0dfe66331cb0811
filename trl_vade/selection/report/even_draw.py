"""An estimate of the useful groups that an even draw of the rows would give: the baseline of a run."""

import numpy as np

from trl_vade.samplers.information import mixed_group_probability, spread_group_probability
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.prior import EVIDENCE, fit_prior


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
