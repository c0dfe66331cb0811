"""The window of pass rates in which the best rows of a draw are, and the beliefs in it; see `large_pool` for its use.

Axis letter: J rows.
"""

import math

import numpy as np

from .checks import FloatArray

Window = tuple[float, float]  # lo, hi


def window(width: float, gain: str) -> Window:
    """Return (lo, hi), pass rates with hi - lo = `width` and equal gains: gains inside are larger than those outside.

    Args:
        width: w in [0, 1].
        gain: "asymmetric" p(1 - p)^2 or "symmetric" p(1 - p).
    """
    if gain == "symmetric":
        lo = (1.0 - width) / 2.0
    else:
        # lo (1 - lo)^2 = hi (1 - hi)^2 at hi = lo + w, divided by w: 3 lo^2 + (3w - 4) lo + (1 - w)^2 = 0. Its lower
        # root goes from 1/3, the mode, at w = 0 to 0 at w = 1.
        lo = (4.0 - 3.0 * width - math.sqrt(4.0 - 3.0 * width * width)) / 6.0
    return lo, lo + width


def wanted_inside(k: int) -> float:
    """Return how many rows are to be expected in the window: eight deviations more than k."""
    return k + 8.0 * math.sqrt(k) + 32.0


def beta_density(p: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the density of Beta(a, b) at p in (0, 1), all (J,); a, b > 0."""
    # numpy has no log-gamma; there are few rows to ask the standard library for.
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    log_beta = np.array([math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y) for x, y in pairs])
    density: FloatArray = np.exp((a - 1.0) * np.log(p) + (b - 1.0) * np.log1p(-p) - log_beta)
    return density


def largest_density(strength: float, a: float, b: float, lo: float, hi: float) -> float:
    """Return a bound of the densities on [lo, hi] of all Beta(a', b') with a' >= a, b' >= b and a' + b' <= strength.

    Let n = a' + b' - 2 and a', b' >= 1. The height of the mode is convex in a': with x = a' - 1 and y = b' - 1 its
    logarithm has the second derivative 1/x + 1/y - psi'(x + 1) - psi'(y + 1) > 0. So it is largest at the ends, where
    it is that of (n + 1) p^n: n + 1. Where a' < 1, p f(p; a', b') = a' / (a' + b') f(p; a' + 1, b') leads back to
    this, and b' likewise.
    """
    counted = strength - 1.0 + (a < 1.0) + (b < 1.0)
    return counted / ((lo if a < 1.0 else 1.0) * (1.0 - hi if b < 1.0 else 1.0))
