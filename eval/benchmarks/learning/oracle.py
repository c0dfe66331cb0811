"""The oracle: it knows every pass rate, and so chooses the best batch there is."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .peers.base import BoolArray, PeerSampler


class OracleSampler(PeerSampler):
    """Choose the K rows whose groups are likeliest to have a gradient; rows of equal chance at random.

    `Draw` has the true pass rates. A scored row rests for `cooldown` steps, as in `ThompsonSampler`. Observations
    change no choice but for that.
    """

    kind = "oracle"
    sees_pass_rates = True  # the loop tells it

    def __init__(self, num_samples: int, *, seed: int = 0, cooldown: int = 0) -> None:
        super().__init__(BetaPosterior(num_samples), seed, {"cooldown": cooldown})
        self._pass_rate = self._mixed = np.zeros(num_samples)

    def set_pass_rates(self, pass_rate: FloatArray, mixed: FloatArray) -> None:
        """Tell the true pass rates and how likely a group of each row has a gradient, (N,) in [0, 1] each."""
        self._pass_rate, self._mixed = pass_rate.copy(), mixed.copy()

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        # `largest` takes the first of equals: they are shuffled, and rounded, or p and 1 - p would not be equals.
        order = generator.permutation(np.flatnonzero(free))
        gain, last = self._mixed[order], self.posterior.last_update[order]
        rest = np.maximum(last + self._settings["cooldown"] - self.posterior.step, 0)
        rows = order[largest(np.round(gain - np.where(last > 0, rest, 0), 12), k)]
        return rows, self._pass_rate[rows]
