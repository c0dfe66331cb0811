"""The window of pass rates that holds the best rows of a draw, and densities of beliefs in it; see `pool`.

Axis letters: J rows, P pass rates.
"""

import math
from collections.abc import Callable

import numpy as np

from trl_vade.checks import FloatArray

Window = tuple[float, float]  # lo, hi

MOST_WIDTH = 0.25  # The largest width. A wider window holds so many rows that drawing all of them is as fast.


def window(width: float, gain: str) -> Window:
    """Return lo and hi with hi - lo = `width` and equal gains, so that gains inside are larger than gains outside.

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
    """Return the wanted expected number of rows in the window: eight standard deviations more than k."""
    return k + 8.0 * math.sqrt(k) + 32.0


def find_window(wanted: float, gain: str, expected: Callable[[FloatArray], FloatArray]) -> Window | None:
    """Return a window with the wanted expected number of rows, or None if no small window has it.

    Args:
        wanted: the expected number of rows, above 0.
        gain: as in `window`.
        expected: returns for pass rates, (P,), the expected density of rows there, in rows a unit of pass rate.
    """
    width = 0.0
    while width <= MOST_WIDTH:
        lo, hi = window(width, gain)
        density = float(expected(np.array([lo, (lo + hi) / 2, hi])).min())
        if density * MOST_WIDTH < wanted:
            return None
        needed = wanted / density
        if needed <= width:
            return lo, hi
        width = needed if width == 0.0 else 1.02 * needed
    return None


def log_gamma(x: FloatArray) -> FloatArray:
    """Return log Gamma(x) for x > 0, to about 1e-12; numpy lacks it.

    Gamma(x) = Gamma(x + 8) / (x (x + 1) ... (x + 7)), with Stirling's series for x + 8.
    """
    product, z = x.copy(), x + 8.0
    for step in range(1, 8):
        product *= x + step
    r = 1.0 / (z * z)
    series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / z
    value: FloatArray = (z - 0.5) * np.log(z) - z + 0.5 * math.log(2 * math.pi) + series - np.log(product)
    return value


def beta_density(p: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the density of Beta(a, b) at p in (0, 1), with broadcasting; a and b are positive."""
    log_beta = log_gamma(a) + log_gamma(b) - log_gamma(a + b)
    density: FloatArray = np.exp((a - 1.0) * np.log(p) + (b - 1.0) * np.log1p(-p) - log_beta)
    return density
