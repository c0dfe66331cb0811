"""What a run of some length knows of its rows: random, cheap, and the same for every contender of a cell."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

COMPLETIONS = 8  # G
DECAY_SAMPLED, DECAY_UNSAMPLED = 0.2, 0.999  # lambda_1 and lambda_2, the paper's
STEP, RECENT = 2000, 1000  # the run is at step 2000, and saw each visited row in the last 1000 steps
MOST_VISITS = 5
_CHUNK = 1 << 20


class Evidence(NamedTuple):
    """A part of the visited rows, (V,) each; the counts are those at `last_update`."""

    rows: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    last_update: np.ndarray
    visits: np.ndarray

    def decayed(self) -> tuple[np.ndarray, np.ndarray]:
        """(alpha, beta) at `STEP`, which is what stands in memory where every row decays in every step."""
        kept = DECAY_UNSAMPLED ** (STEP - self.last_update)
        return self.alpha * kept, self.beta * kept


def stride_of(percent: float) -> int:
    """One row in so many is visited."""
    stride = round(100 / percent) if 0 < percent <= 100 else 0
    if not stride or abs(stride * percent - 100) > 1e-6:
        raise ValueError(f"{percent} % of the rows is not one row in a whole number; take 100, 50, 10, 1 or 0.1.")
    return stride


def num_visited(num_rows: int, percent: float) -> int:
    return num_rows // stride_of(percent)


def evidence(num_rows: int, percent: float, seed: int) -> Iterator[Evidence]:
    """Yield the visited rows in rising order, a million at a time: one anywhere in each stretch of 1/share rows."""
    generator, stride = np.random.default_rng(seed), stride_of(percent)
    # A row's history is one of 65,536 that were drawn in full: at 1e8 rows it takes seconds, and not minutes.
    visits = generator.integers(1, MOST_VISITS + 1, 65536)
    pass_rate, alpha, beta = generator.random(65536), np.zeros(65536), np.zeros(65536)
    for age in range(MOST_VISITS):
        successes = generator.binomial(COMPLETIONS, pass_rate)
        kept = np.where(age < visits, DECAY_SAMPLED**age, 0)
        alpha, beta = alpha + kept * successes, beta + kept * (COMPLETIONS - successes)
    for start in range(0, num_visited(num_rows, percent), _CHUNK):
        places = np.arange(start, min(start + _CHUNK, num_visited(num_rows, percent)))
        rows = places * stride + generator.integers(stride, size=places.size)
        history = generator.integers(65536, size=places.size)
        last_update = STEP - generator.integers(RECENT, size=places.size)
        yield Evidence(rows, alpha[history], beta[history], last_update, visits[history])
