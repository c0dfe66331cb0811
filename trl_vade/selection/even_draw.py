"""An estimate of the useful groups of an even draw: the baseline of a run that chooses its rows."""

import numpy as np

from trl_vade.samplers.base import PosteriorSampler
from trl_vade.samplers.information import mixed_group_probability, spread_group_probability
from trl_vade.samplers.prior import learned_prior

MOST_ROWS = 4096  # of which the estimate is made, spread evenly over the rows with evidence


def even_draw_ratio(sampler: PosteriorSampler, num_generations: int, *, spread: bool = False) -> float | None:
    """Return the expected share of groups with a gradient if rows were drawn evenly; None without evidence.

    It is the mean over the belief about all rows, with the prior that is fitted to the rows seen. Beta(1, 1) would
    give too high a share: it expects medium pass rates of every row without evidence.

    Args:
        sampler: of the run.
        num_generations: G, the completions of a group.
        spread: whether the belief is about spreads.
    """
    posterior, visited = sampler.posterior, sampler.posterior.visited
    if not visited.size:
        return None
    (a, b), (prior_a, prior_b) = (
        posterior.visited_counts(),
        learned_prior(*posterior.visited_counts(), visited).table[0],
    )
    some = np.linspace(0, visited.size - 1, min(visited.size, MOST_ROWS)).astype(np.int64)
    of = spread_group_probability if spread else mixed_group_probability
    seen = float(of(a[some] + prior_a, b[some] + prior_b, num_generations).mean())
    fresh = float(of(np.array([prior_a]), np.array([prior_b]), num_generations)[0])
    share = visited.size / posterior.num_samples
    return share * seen + (1.0 - share) * fresh
