"""MoPPS: the rows with sampled pass rates closest to 1/2, among the next candidates of an epoch's order."""

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_share, check_whole_number
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .base import BoolArray, PeerSampler


class MoPPSSampler(PeerSampler):
    """A sampler that chooses, of `pool_factor` K candidates, the K with sampled pass rates closest to the target.

        p~_i ~ Beta(a_i, b_i)    for the candidates; the K smallest (p~_i - target)^2
        a <- decay a + (1 - decay) + successes,    b likewise with the failures    for scored rows only

    The candidates are the next rows of an epoch's order, as from a shuffled data loader that drops its last,
    incomplete batch. The counts of a row that is not scored never decay.

    Source: MoPPS, arXiv 2507.04632; github.com/thu-rllab/MoPPS, `PosteriorSampler` with strategy `topk`. Its scripts
    for Countdown and Geometry3k have decay 0.5 and 8 candidates a row, those for MATH 1.0 and 16. Differences: trials
    are counted; the code multiplies the mean score by G. Ties go to the earlier candidate. There is no warm start from
    a file of pass rates.

    Args:
        num_samples: N, at least 1. The seed is in [0, 2**63).
        decay: the share of the old counts that a scored row keeps, in [0, 1].
        pool_factor: candidates for each drawn row, at least 1. With fewer rows left all are candidates.
        target: the pass rate to be close to, in [0, 1].
    """

    kind = "mopps"

    def __init__(
        self, num_samples: int, *, seed: int = 0, decay: float = 0.5, pool_factor: int = 8, target: float = 0.5
    ) -> None:
        settings = {
            "decay": check_share("decay", decay),
            "pool_factor": check_whole_number(
                "pool_factor", pool_factor, minimum=1, advice="1 draws every candidate; MoPPS uses 8."
            ),
            "target": check_share("target", target),
        }
        posterior = BetaPosterior(num_samples, decay_sampled=decay, decay_unsampled=1.0)
        super().__init__(posterior, seed, settings, in_epochs=True)

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        size = min(self._settings["pool_factor"] * k, int(np.count_nonzero(free)))
        epoch, position = self.progress["epoch"], self.progress["position"]
        places = position + np.flatnonzero(free[self._order(epoch)[position:]])
        if places.size < size:
            epoch, places = epoch + 1, np.flatnonzero(free[self._order(epoch + 1)])
        candidates = self._order(epoch)[places[:size]]
        self.progress |= {"epoch": epoch, "position": int(places[size - 1]) + 1}
        pass_rate = generator.beta(*self.belief(candidates))
        best = largest(-((pass_rate - self._settings["target"]) ** 2), k)
        return candidates[best], pass_rate[best]
