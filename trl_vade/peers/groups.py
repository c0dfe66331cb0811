"""Groups whose rewards are 0 or 1: how large their advantages are, and how likely they are to have any."""

import numpy as np

from ..checks import FloatArray


def mean_absolute_advantage(successes: FloatArray, trials: FloatArray) -> FloatArray:
    """Return the mean |A| of groups whose rewards are 1 for a success and else 0.

    TRL 1.16 takes A = (r - mean) / (s + 1e-4) with the sample standard deviation, the unbiased one. For the share
    p = successes / trials, the mean of |r - mean| is 2 p (1 - p), and s^2 is p (1 - p) trials / (trials - 1).

    Args:
        successes: (K,) in [0, trials].
        trials: (K,) completions that got a score.

    Returns:
        (K,) in [0, 1); 0 where fewer than two completions were scored, which leaves nothing to compare.
    """
    several = trials > 1.0
    p = successes / np.where(several, trials, 1.0)
    spread = np.where(several, p * (1.0 - p), 0.0)
    deviation = np.sqrt(spread * trials / np.where(several, trials - 1.0, 1.0))
    return 2.0 * spread / (deviation + 1e-4)


def mixed_ratio(pass_rate: FloatArray, num_generations: int) -> FloatArray:
    """Return 1 - p^G - (1 - p)^G, the chance that G completions are neither all right nor all wrong, for each p."""
    mixed: FloatArray = 1.0 - pass_rate**num_generations - (1.0 - pass_rate) ** num_generations
    return mixed
