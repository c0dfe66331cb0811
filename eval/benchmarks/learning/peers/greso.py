"""GRESO: every row in turn; the longer a row had no gradient, the more often it is skipped."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_outcomes, check_share
from trl_vade.samplers.posterior import BetaPosterior

from .base import BoolArray, PeerSampler, saved_numbers


class GRESOSampler(PeerSampler):
    """A sampler that goes through an epoch's order and skips rows with a streak of groups without a gradient.

        P(skip) = 1 - max(p^z, 0.01)    z groups in a row with mean >= 0.98 (p = p_easy) or <= 0.11 (p = p_hard)

    Both p start at 0.5 and stay in [0.05, 0.95]. From the second epoch on, every step moves p_easy by 0.01. It falls
    if at least a third of `target_zero_variance` of the groups had a mean >= 0.98, and rises otherwise. p_hard moves
    likewise, with a mean <= 0.11 and two thirds. As in the code, one success in ten or more completions is hard.

    Source: GRESO, arXiv 2506.02177; github.com/Infini-AI-Lab/GRESO, strategy `all_probabilistic`. Differences: K is
    fixed; the code samples until enough groups have a gradient, as `vade_dynamic_sampling` does. With that, both p
    move once a round here, and once an update there. A draw that ends an epoch continues in the next one, without the
    rows it has.

    Args:
        num_samples: N, at least 1. The seed is in [0, 2**63).
        target_zero_variance: the target share of groups without a gradient, in [0, 1].
    """

    kind = "greso"

    def __init__(self, num_samples: int, *, seed: int = 0, target_zero_variance: float = 0.25) -> None:
        settings = {"target_zero_variance": check_share("target_zero_variance", target_zero_variance)}
        super().__init__(BetaPosterior(num_samples), seed, settings, in_epochs=True)
        self._p, self._aim = np.array([0.5, 0.5]), target_zero_variance * np.array([1 / 3, 2 / 3])  # easy, hard each
        self._streak = np.zeros(self.posterior.num_samples, dtype=np.int64)  # (N,) z where easy, -z where hard, or 0

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior, the streaks, p_easy and p_hard; see `BetaPosterior.observe`."""
        super().observe(sample_index, successes, trials, mixed)
        wins, tries = check_outcomes(successes, trials)
        rows, mean = self.posterior.check_rows(sample_index)[tries > 0], wins[tries > 0] / tries[tries > 0]
        easy, hard, before = mean >= 0.98, mean <= 0.11, self._streak[rows]
        self._streak[rows] = np.where(easy, np.maximum(before, 0) + 1, np.where(hard, np.minimum(before, 0) - 1, 0))
        if self.progress["epoch"] > 0 and rows.size:
            too_many = np.array([easy.mean(), hard.mean()]) >= self._aim
            self._p = np.clip(self._p + np.where(too_many, -0.01, 0.01), 0.05, 0.95)

    def metrics(self) -> dict[str, float]:
        """Return those of `PosteriorSampler.metrics`, `p_easy` and `p_hard`."""
        return {**super().metrics(), "p_easy": float(self._p[0]), "p_hard": float(self._p[1])}

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        keep = np.maximum(np.where(self._streak > 0, *self._p) ** np.abs(self._streak), 0.01)
        rows, epoch, start = np.empty(0, dtype=np.int64), self.progress["epoch"], self.progress["position"]
        while True:  # ends, since each epoch keeps each row with a chance of at least 0.01
            order = self._order(epoch)[start:]
            places = np.flatnonzero(free[order] & (generator.random(order.size) < keep[order]))[: k - rows.size]
            rows = np.concatenate([rows, order[places]])
            if rows.size == k:
                self.progress |= {"epoch": epoch, "position": start + int(places[-1]) + 1}
                return rows, self._expected(rows)
            free[rows], epoch, start = False, epoch + 1, 0

    def _recall(self) -> dict[str, Any]:
        return {"p": self._p.tolist(), "streak": self._streak.tolist()}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        p = saved_numbers("p", memory["p"], float, low=0.05, high=0.95, size=2)
        streak = saved_numbers("streak", memory["streak"], int, low=-(2**53), high=2**53, size=self._streak.size)
        self._p, self._streak = np.array(p), np.array(streak, dtype=np.int64)
