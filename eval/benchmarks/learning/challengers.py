"""Rules that try to beat the package's, and peers that the package does not have as their authors run them.

Each challenger is the `frontier` preset with one change. Its prediction was written on 2026-11-25, before its first
run, as a difference to `frontier`. A rule enters the package only if it wins. `docs/results/learning.md` has what came
of each.

Axis letters: N rows, K rows of a draw.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trl_vade.samplers import ThompsonSampler
from trl_vade.samplers.information import gain_of, mixed_group_probability
from trl_vade.samplers.peers.base import PeerSampler
from trl_vade.samplers.peers.sec import SECSampler
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.top_k import largest


class Challenger(ThompsonSampler):
    """Thompson's draw with three places to change: the value of a row, its rest, and the share that is drawn blindly.

    `observe` passes the groups on to `learn`, with the beliefs as they were before.
    """

    def value(self, pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value of every row, (N,) below 1."""
        return gain_of(pass_rate, self._settings["gain"])

    def rest(self, rows: Any) -> Any:
        """Return the steps for which each of the rows still rests."""
        return self._steps_to_rest(rows)

    def blind_share(self) -> float:
        return 0.0

    def learn(self, rows: Any, pass_rate: Any, mixed: Any, promised: Any, belief: Any) -> None:
        """Note K groups: rates, whether mixed, the promised probability of that, alpha and beta without the prior."""

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        rows, right, tries = np.asarray(sample_index), np.asarray(successes), np.asarray(trials)
        counts = self.posterior.counts(rows)
        promised = mixed_group_probability(*self.belief(rows), int(tries[0]))
        super().observe(sample_index, successes, trials, mixed)
        came = (right > 0) & (right < tries) if mixed is None else np.asarray(mixed)
        self.learn(rows, right / tries, came, promised, counts)

    def _from_all(self, k: int, excluded: Any, chance: np.random.Generator) -> Any:
        a, b = self.belief()
        mean, pass_rate = a / (a + b), chance.beta(a, b)
        rows = np.delete(np.arange(mean.size), excluded)
        resting = self.rest(rows)
        num_blind = round(k * self.blind_share())
        chosen = largest(self.value(pass_rate)[rows] - resting, k - num_blind)
        if num_blind:
            blind = chance.random(rows.size) - resting
            blind[chosen] = -np.inf
            chosen = np.concatenate([chosen, largest(blind, num_blind)])
        rows = rows[chosen]
        return rows, pass_rate[rows], mean[rows]


class GrowingRest(Challenger):
    """A row rests twice as long after each group without a gradient in a row, up to 16 times as long.

    Prediction: many_impossible +0.015, since rows that cannot be learned come back less often; staged -0.01, since
    rows that unlock late are found later; wide 0, since rows hardly come twice.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._dead = np.zeros(self.posterior.num_samples)

    def learn(self, rows: Any, pass_rate: Any, mixed: Any, promised: Any, belief: Any) -> None:
        self._dead[rows] = np.where(mixed, 0, np.minimum(self._dead[rows] + 1, 5))

    def rest(self, rows: Any) -> Any:
        last = self.posterior.last_update_of(rows)
        steps = self._settings["cooldown"] * 2.0 ** np.maximum(self._dead[rows] - 1, 0)
        return np.where(last > self._taken_over, np.maximum(last + steps - self.posterior.step, 0), 0)


class RisingBlindShare(Challenger):
    """A part of the rows is drawn blindly: what is missing of the promised mixed groups, of late, up to one half.

    Prediction: no_headroom +0.005 and hard_pictures +0.004, since more rows are seen; staged -0.01.
    """

    came, promised = 4.0, 4.0

    def learn(self, rows: Any, pass_rate: Any, mixed: Any, promised: Any, belief: Any) -> None:
        self.came, self.promised = 0.9 * self.came + mixed.sum(), 0.9 * self.promised + promised.sum()

    def blind_share(self) -> float:
        return float(np.clip(1 - self.came / self.promised, 0.0, 0.5))


class MovedRates(Challenger):
    """A row is worth more if its rate moved between its visits: half the gain at rest, up to one and a half times.

    Prediction: staged +0.005, since chains that are being learned move; many_impossible +0.005; pictures 0.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._last = np.full(self.posterior.num_samples, np.nan)
        self._moved = np.full(self.posterior.num_samples, 0.5)

    def learn(self, rows: Any, pass_rate: Any, mixed: Any, promised: Any, belief: Any) -> None:
        moved = np.abs(pass_rate - self._last[rows])
        seen = ~np.isnan(moved)
        self._moved[rows[seen]] = 0.5 * self._moved[rows[seen]] + 0.5 * moved[seen]
        self._last[rows] = pass_rate

    def value(self, pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
        return super().value(pass_rate) * (0.5 + self._moved)


class Calibrated(Challenger):
    """The gain p(1 - p)^1.5, times how many groups of a row's class came mixed, over how many were promised, of late.

    The classes are rows that were never solved, rows that were never failed, and all others, by their counts.

    Prediction: staged -0.01, many_impossible 0, as in a first study.
    """

    MEMORY, PRIOR_GROUPS, MOST, RARE, ENOUGH = 0.98, 4.0, 2.0, 0.05, 4.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._mixed, self._expected = np.full(3, self.PRIOR_GROUPS), np.full(3, self.PRIOR_GROUPS)

    def classes(self, alpha: Any, beta: Any) -> NDArray[np.int64]:
        """Return 1 where never solved, 2 where never failed, and 0 elsewhere."""
        few = self.RARE * (alpha + beta)
        never_solved, never_failed = (alpha < few) & (beta >= self.ENOUGH), (beta < few) & (alpha >= self.ENOUGH)
        return np.where(never_solved, 1, np.where(never_failed, 2, 0))

    def learn(self, rows: Any, pass_rate: Any, mixed: Any, promised: Any, belief: Any) -> None:
        of, kept = self.classes(*belief), (1 - self.MEMORY) * self.PRIOR_GROUPS
        self._mixed = self.MEMORY * self._mixed + kept + np.bincount(of, mixed, 3)
        self._expected = self.MEMORY * self._expected + kept + np.bincount(of, promised, 3)

    def value(self, pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
        factors = np.minimum(self._mixed / self._expected, self.MOST)
        return pass_rate * (1 - pass_rate) ** 1.5 * factors[self.classes(*self.posterior.counts())]


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
