"""Peers as their authors run them: BOTS with its implicit evidence, SEC without replacement.

Axis letters: N rows, K rows of a draw.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.strata import largest

from .base import PeerSampler
from .sec import SECSampler


class WholeBOTS(PeerSampler):
    """BOTS with its implicit evidence: what the pass rates of two reference policies say of the rows not drawn.

        a <- (1 - lambda) a + lambda + (1 - rho) successes + rho G p~,    b likewise with the failures, for all rows
        p~ = clip(low + c (high - low), 0, 1), where c places the batch between the two references, decayed by 0.9

    Source: BOTS, arXiv 2510.26374; Trinity-RFT, `trinity/buffer/selector/difficulty_estimator.py`, lambda = rho = 0.1.
    The K rows with sampled rates closest to 1/2 are drawn.
    """

    kind = "whole_bots"

    def __init__(self, anchors: NDArray[np.float64], *, seed: int, decay: float = 0.1, rho: float = 0.1) -> None:
        super().__init__(BetaPosterior(len(anchors)), seed, {"decay": decay, "rho": rho})
        self._anchors, self._ability = anchors, None  # (N, 2): pass rates of the weaker and of the stronger reference
        self._a, self._b = np.ones(len(anchors)), np.ones(len(anchors))

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        super().observe(sample_index, successes, trials, mixed)
        rows, tries = np.asarray(sample_index), np.asarray(trials)
        rate, low, high = np.asarray(successes) / tries, *self._anchors.T
        found = (rate.mean() - low[rows].mean()) / (high[rows].mean() - low[rows].mean() + 1e-6)
        self._ability = found if self._ability is None else 0.9 * self._ability + 0.1 * found
        told = np.clip(low + self._ability * (high - low), 0, 1)
        told[rows] = rate
        decay, rho, size = self._settings["decay"], self._settings["rho"], tries[0]
        seen = np.zeros(len(low))
        seen[rows] = (1 - rho) * size
        self._a = (1 - decay) * self._a + decay + (seen + rho * size) * told
        self._b = (1 - decay) * self._b + decay + (seen + rho * size) * (1 - told)

    def belief(self, sample_index: ArrayLike | None = None) -> Any:
        return (self._a, self._b) if sample_index is None else (self._a[sample_index], self._b[sample_index])

    def _choose(self, k: int, free: Any, generator: np.random.Generator) -> Any:
        pass_rate = generator.beta(self._a, self._b)
        rows = largest(np.where(free, -np.abs(pass_rate - 0.5), -np.inf), k)
        return rows, pass_rate[rows]


class SECWithoutReplacement(SECSampler):
    """SEC as its authors' code draws: a kind's rows come without replacement until all of them were drawn."""

    kind = "sec_without_replacement"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._left = np.ones(self.posterior.num_samples, dtype=np.bool_)

    def _choose(self, k: int, free: Any, generator: np.random.Generator) -> Any:
        taken = self._places(k, free, generator)
        chosen = []
        for kind in np.flatnonzero(taken):
            of_kind, wanted = free & (self._arm == kind), taken[kind]
            first = generator.permutation(np.flatnonzero(of_kind & self._left))[:wanted]
            if len(first) < wanted:  # used up: its rows begin anew
                self._left[self._arm == kind] = True
                again = np.setdiff1d(np.flatnonzero(of_kind), first)
                first = np.concatenate([first, generator.permutation(again)[: wanted - len(first)]])
            self._left[first] = False
            chosen.append(first)
        rows = generator.permutation(np.concatenate(chosen))
        return rows, self._expected(rows)
