"""The information gain of a group of rollouts, and the probability that it has a gradient at all.

Source: VADE, arXiv 2511.18902. Axis letters: K rows, G generations.
"""

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray
from trl_vade.errors import ConfigurationError, abbreviated

INFORMATION_GAINS = ("asymmetric", "symmetric")  # the gains of a pass rate
SPREAD_GAIN = "spread"  # the gain of a spread: the share of pairs of completions with different rewards


def information_gain(pass_rate: ArrayLike, kind: str = "asymmetric") -> FloatArray:
    """Return the information gain of a group of rollouts, given the pass rate `p` of its row, as a new array.

        asymmetric   p (1 - p)^2    (eq. 4)  largest at p = 1/3, 4/27: prefers hard rows to easy ones
        symmetric    p (1 - p)               largest at p = 1/2, 1/4: the variance of one reward
        spread       s / 2                   of a spread s; rewards of 0 and 1 have s = 2p (1 - p)

    The first two are 0 at p = 0 and p = 1. All rewards of a group are equal there, and GRPO has no gradient.

    Args:
        pass_rate: p (or s) in [0, 1], of any shape.
        kind: "asymmetric", "symmetric" or "spread"; any other is a `ConfigurationError`.
    """
    if kind not in (*INFORMATION_GAINS, SPREAD_GAIN):
        raise ConfigurationError(
            f"The information gain is {abbreviated(kind)}; it must be 'asymmetric', 'symmetric' or 'spread'."
        )
    p = np.asarray(pass_rate, dtype=np.float64)
    if kind == SPREAD_GAIN:
        return 0.5 * p
    failure = 1.0 - p
    gain: FloatArray = p * failure
    if kind == "asymmetric":
        gain *= failure
    return gain


def mixed_group_probability(a: FloatArray, b: FloatArray, num_generations: int) -> FloatArray:
    """Return the probability that a group of G completions has a gradient, for pass rates p ~ Beta(a, b).

        E[1 - p^G - (1 - p)^G],    E[p^G] = prod_{j<G} (a + j) / (a + b + j),    E[(1 - p)^G] likewise with b

    A group has a gradient if some rewards are 1 and some are 0. a and b are positive and of one shape, G is at least
    1. The result is accurate to about G rounding errors.
    """
    # The formula is symmetric in a and b, so the smaller one can always be the unlikely outcome.
    unlikely, total = np.minimum(a, b), a + b
    log_larger, smaller = np.zeros_like(total), np.ones_like(total)
    for j in range(num_generations):
        # A ratio of gamma functions would give the same moment. But at counts of 1e6 each log-gamma is about 1e7, and
        # their difference would lose nine digits. log1p keeps them.
        log_larger += np.log1p(-unlikely / (total + j))
        smaller *= (unlikely + j) / (total + j)
    # -expm1 is 1 - larger, exact also where `larger` is close to 1. For G = 1 rounding could leave -1e-17.
    return np.maximum(-np.expm1(log_larger) - smaller, 0.0)


def spread_group_probability(a: FloatArray, b: FloatArray, num_generations: int) -> FloatArray:
    """Return the probability that G rewards are not all equal, for a spread s ~ Beta(a, b); a and b have one shape.

    The formula is that of two reward values, one of them with probability p, so s = 2 p (1 - p). Then p^G + (1 - p)^G
    is a polynomial in s: P_n = P_(n-1) - (s / 2) P_(n-2), from P_0 = 2 and P_1 = 1. The moments of s are known.
    With more values (s above 1/2) the result is too low by up to 2^(1 - G/2).
    """
    older, newer = np.array([2.0]), np.array([1.0])  # coefficients of s^0, s^1, ...
    for _ in range(num_generations - 1):
        shifted = np.concatenate([[0.0], -0.5 * older])
        shifted[: newer.size] += newer
        older, newer = newer, shifted
    all_equal, moment = np.zeros_like(a), np.ones_like(a)
    for power, coefficient in enumerate(newer):
        all_equal += coefficient * moment
        moment = moment * (a + power) / (a + b + power)
    return np.clip(1.0 - all_equal, 0.0, 1.0)
