"""Difficulty pools, as in prime-rl: rows that the latest group showed to be hard or easy are drawn less often."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray

from ..posterior import BetaPosterior
from ..top_k import largest
from .base import BoolArray, PeerSampler

POOLS = ("hard", "normal", "easy", "unseen")
UPPER_ENDS = (0.25, 0.75)
"""Largest group mean of the hard and of the normal pool."""
WEIGHTS = np.array([0.2, 1.0, 0.2, 1.0])
"""Relative chance of one row of each pool."""


class DifficultyPoolSampler(PeerSampler):
    """Draw K rows without replacement, each with the weight of the pool that its latest group puts it into.

        hard    mean <= 0.25          weight 0.2
        normal  0.25 < mean <= 0.75   weight 1
        easy    mean > 0.75           weight 0.2
        unseen  no group yet          weight 1

    Source: prime-rl, `DifficultyPoolSampler` with its default pools. Difference: it draws one task at a time with
    replacement; the rows of a `Draw` are distinct, so each is taken out of the urn.

    Args:
        num_samples: N, at least 1.
        seed: in [0, 2**63).

    Raises:
        ConfigurationError: an argument is outside its range.
    """

    kind = "difficulty_pools"

    def __init__(self, num_samples: int, *, seed: int = 0) -> None:
        # With these decays the counts are those of the latest group.
        posterior = BetaPosterior(num_samples, decay_sampled=0.0, decay_unsampled=1.0)
        super().__init__(posterior, seed, {})

    def pools(self) -> IntArray:
        """(N,) the pool of each row, a position in `POOLS`."""
        alpha, beta = self.posterior.counts()
        trials = alpha + beta
        mean = alpha / np.where(trials > 0, trials, 1.0)
        return np.where(trials > 0, np.searchsorted(UPPER_ENDS, mean, side="left"), POOLS.index("unseen"))

    def metrics(self) -> dict[str, float]:
        """Return the usual ones, and `pool_*`, the share of the rows in each pool."""
        shares = np.bincount(self.pools(), minlength=len(POOLS)) / self.posterior.num_samples
        return {
            **super().metrics(),
            **{f"pool_{name}": float(share) for name, share in zip(POOLS, shares, strict=True)},
        }

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        # The first K arrivals of clocks that ring at the rate of the weights are K draws without replacement.
        arrival = generator.exponential(size=free.size) / WEIGHTS[self.pools()]
        rows = largest(np.where(free, -arrival, -np.inf), k)
        return rows, self._expected(rows)
