"""Difficulty pools, as in prime-rl: rows with a hard or easy latest group are drawn less often."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .base import BoolArray, PeerSampler

POOLS = ("hard", "normal", "easy", "unseen")
UPPER_ENDS = (0.25, 0.75)  # the largest group mean of the hard and of the normal pool
WEIGHTS = np.array([0.2, 1.0, 0.2, 1.0])  # the relative chance of one row of each pool


class DifficultyPoolSampler(PeerSampler):
    """A sampler that draws K rows without replacement, weighted by the pools of their latest groups.

        hard    mean <= 0.25          weight 0.2
        normal  0.25 < mean <= 0.75   weight 1
        easy    mean > 0.75           weight 0.2
        unseen  no group yet          weight 1

    Source: prime-rl, `DifficultyPoolSampler` with its default pools. Difference: prime-rl draws tasks one at a time
    with replacement; the rows of a `Draw` are distinct.

    Args:
        num_samples: N, at least 1. The seed is in [0, 2**63).
    """

    kind = "difficulty_pools"

    def __init__(self, num_samples: int, *, seed: int = 0) -> None:
        # With these decays the counts are those of the latest group.
        posterior = BetaPosterior(num_samples, decay_sampled=0.0, decay_unsampled=1.0)
        super().__init__(posterior, seed, {})

    def pools(self) -> IntArray:
        """Return the pool of each row, (N,), as a position in `POOLS`."""
        alpha, beta = self.posterior.counts()
        trials = alpha + beta
        mean = alpha / np.where(trials > 0, trials, 1.0)
        return np.where(trials > 0, np.searchsorted(UPPER_ENDS, mean, side="left"), POOLS.index("unseen"))

    def metrics(self) -> dict[str, float]:
        """Return those of `PosteriorSampler.metrics` and `pool_*`, the share of the rows in each pool."""
        shares = np.bincount(self.pools(), minlength=len(POOLS)) / self.posterior.num_samples
        return super().metrics() | {f"pool_{name}": float(share) for name, share in zip(POOLS, shares, strict=True)}

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        # The first K arrivals of exponential clocks with these rates are K draws without replacement.
        arrival = generator.exponential(size=free.size) / WEIGHTS[self.pools()]
        rows = largest(np.where(free, -arrival, -np.inf), k)
        return rows, self._expected(rows)
