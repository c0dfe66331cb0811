"""The baseline: every row once an epoch, in the order of TRL's own trainer; N rows of the data set."""

import functools

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import IntArray

from .base import Draw, PosteriorSampler
from .information import SPREAD_GAIN, information_gain
from .posterior import BetaPosterior, beta_mean
from .problems import VariantRows, problems_of


@functools.lru_cache(maxsize=2)  # a refill may look into the next epoch
def stock_order(num_samples: int, seed: int, epoch: int) -> IntArray:
    """Return the order of the rows, (N,), that TRL's own trainer uses in `epoch`. Do not write into it.

    TRL's `RepeatSampler` (1.16) calls `torch.randperm(N, generator=g)` once an epoch, with one `g` seeded once. On the
    CPU that is a Fisher-Yates shuffle with N - 1 outputs of a 32-bit Mersenne Twister (ATen, randperm_cpu). numpy's
    `RandomState` is the same twister with the same seeding, and its stream is frozen (NEP 19).
    """
    twister = np.random.MT19937()
    np.random.RandomState(twister).seed(seed % 2**32)  # torch also seeds its twister with the low 32 bits
    twister.random_raw(epoch * (num_samples - 1), output=False)  # skips the earlier epochs
    outputs = twister.random_raw(num_samples - 1).astype(np.uint32)
    jumps = (outputs % np.arange(num_samples, 1, -1, dtype=np.uint32)).tolist()
    rows = list(range(num_samples))
    for i, jump in enumerate(jumps):
        rows[i], rows[i + jump] = rows[i + jump], rows[i]
    return np.array(rows, dtype=np.int64)


class UniformSampler(PosteriorSampler):
    """A sampler that chooses every row once an epoch, in the order of TRL's `GRPOTrainer` with the same seed.

    As in TRL's `RepeatSampler`, a draw that is larger than the rest of an epoch starts the next one, and the rest is
    dropped. The posterior learns for the metrics alone. A `Draw` assumes the posterior mean and its asymmetric gain.

    Args:
        num_samples: N, at least 1. From 214,748,364 rows on TRL's order is another one.
        seed: of the run, in [0, 2**63).
        decay_sampled: see `BetaPosterior`.
        decay_unsampled: see `BetaPosterior`.
        signal_aware_decay: see `BetaPosterior`.
        variants: see `ThompsonSampler`.
        variant_groups: V. With V > 0 an epoch is a permutation of the problems with at least V variants.
        variant_match: see `ThompsonSampler`; "posterior" draws a pass rate for each variant of the chosen problems.
    """

    kind = "uniform"
    bound = ("variants", "variant_groups")  # an epoch is a permutation of these problems

    def __init__(
        self,
        num_samples: int,
        *,
        seed: int = 0,
        decay_sampled: float = 0.2,
        decay_unsampled: float = 0.999,
        signal_aware_decay: bool = False,
        variants: VariantRows | None = None,
        variant_groups: int = 0,
        variant_match: str = "posterior",
    ) -> None:
        decays = {"decay_sampled": decay_sampled, "decay_unsampled": decay_unsampled}
        posterior = BetaPosterior(num_samples, **decays, signal_aware_decay=signal_aware_decay)
        problems, settings = problems_of(variants, variant_groups, variant_match, num_samples)
        self._size = num_samples if problems is None else problems.originals.size  # of an epoch, in rows or problems
        # No run draws 2**30 rows, and `stock_order` would take forever to skip so many random numbers.
        limits = {"epoch": 2**30 // self._size, "position": self._size}
        super().__init__(posterior, seed, settings, limits, problems)
        self._gain = "asymmetric"

    def use_spreads(self) -> None:
        """Treat later outcomes as spreads, and match variants by the gain s / 2."""
        self._gain = SPREAD_GAIN

    def draw(self, k: int, *, exclude: ArrayLike | None = None) -> Draw:
        """Choose the next `k` rows of the permutation, or k / (1 + V) problems; see `ThompsonSampler.draw`."""
        k, excluded = self._check_draw(k, exclude)
        epoch, position = self.progress["epoch"], self.progress["position"]
        chance = self._generator(epoch * (self._size + 1) + position)  # of the match
        places = self._free(epoch, position, k, excluded)
        if places.size < k:
            epoch, places = epoch + 1, self._free(epoch + 1, 0, k, excluded)
        rows = stock_order(self._size, self._seed, epoch)[places]
        if self._problems is not None:
            means, kind = (lambda some: beta_mean(*self.posterior.counts(some))), self._gain
            gains = lambda some: information_gain(chance.beta(*self.belief(some)), kind)  # noqa: E731
            rows = self._problems.rows_of(rows, gains, means, chance)
        self.progress = {"epoch": epoch, "position": int(places[-1]) + 1}
        mean = beta_mean(*self.posterior.counts(rows))
        return Draw(rows, mean.copy(), information_gain(mean), mean)

    def _free(self, epoch: int, position: int, k: int, excluded: IntArray) -> IntArray:
        """Return the first `k` free places of the permutation from `position` on, or all if there are fewer."""
        if not excluded.size:
            return np.arange(position, min(position + k, self._size))
        return position + np.flatnonzero(~np.isin(stock_order(self._size, self._seed, epoch)[position:], excluded))[:k]
