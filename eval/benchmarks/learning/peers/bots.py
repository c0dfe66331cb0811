"""BOTS: the rows of the whole data set with sampled pass rates closest to 1/2; all counts decay alike."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_share
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .base import BoolArray, PeerSampler


class BOTSSampler(PeerSampler):
    """A sampler that chooses the K rows with sampled pass rates closest to the target.

        p~_i ~ Beta(a_i, b_i)    for all N rows; the K largest -|p~_i - target|
        a <- (1 - decay) a + decay + successes,    b likewise with the failures    for all N rows in every step

    Source: BOTS, arXiv 2510.26374; Trinity-RFT, `trinity/buffer/selector`. Its `lamb`, 0.1 in its configuration, is
    `decay` here. **This is BOTS with explicit evidence only.** Its implicit evidence needs the pass rates of two
    reference models, and its `lamb` was chosen with it. The best K are always chosen (its `tau` is 0). The generator
    is seeded.

    Args:
        num_samples: N, at least 1. The seed is in [0, 2**63).
        decay: lambda in [0, 1], the share of the old counts that every row loses in a step.
        target: the pass rate to be close to, in [0, 1].
    """

    kind = "bots"

    def __init__(self, num_samples: int, *, seed: int = 0, decay: float = 0.1, target: float = 0.5) -> None:
        settings = {"decay": check_share("decay", decay), "target": check_share("target", target)}
        kept = 1.0 - settings["decay"]
        posterior = BetaPosterior(num_samples, decay_sampled=kept, decay_unsampled=kept)
        super().__init__(posterior, seed, settings)

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        pass_rate = generator.beta(*self.belief())
        rows = largest(np.where(free, -np.abs(pass_rate - self._settings["target"]), -np.inf), k)
        return rows, pass_rate[rows]
