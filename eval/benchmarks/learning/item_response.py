"""A challenger: a belief that keeps the difficulty of a row and lets the ability of the policy move.

    logit p_i(t) = x_i w(t) + u_i

x_i are features of row i and a constant: words of its prompt, or the policy's own hidden state. The ability w moves; a
row's difficulty u_i ~ N(m_i, s_i) stays. With `mixture`, a row is solvable with probability pi_i only, and else has a
pass rate of 0: a wrong reference answer is another kind of row, and not a hard one.

Axis letters: N rows, F features, K rows of a step, B rows of the last steps.
"""

from collections import deque

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from trl_vade.checks import FloatArray, IntArray
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.priors import even_draw_ratio
from trl_vade.samplers.strata import largest
from trl_vade.samplers.thompson import ThompsonSampler

from .peers.base import BoolArray, PeerSampler

STEPS, FADE, RIDGE = 60, 0.9, 0.05  # of the fit of w: the last steps, their weight by age, the penalty
DRIFT = 0.03  # of s, before each visit but the first
LOWEST, HIGHEST = 0.05, 9.0  # of tau^2, the variance of the difficulties of unseen rows
SURE = 0.001  # pi is in [0.001, 0.999]
SHORT_REST = 3  # steps, of a row whose group was mixed
QUANTILES = norm.ppf((np.arange(16) + 0.5) / 16)


class ShortRestSampler(ThompsonSampler):
    """The default, but that a row whose group was mixed rests `SHORT_REST` steps at most."""

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Note which groups were mixed."""
        super().observe(sample_index, successes, trials, mixed)
        self._is_live = getattr(self, "_is_live", np.zeros(self.posterior.num_samples, dtype=np.bool_))
        self._is_live[sample_index] = mixed

    def _steps_to_rest(self) -> FloatArray:
        left = super()._steps_to_rest()
        short = np.maximum(self.posterior.last_update + SHORT_REST - self.posterior.step, 0)
        return np.where(getattr(self, "_is_live", False), np.minimum(left, short), left)


class ItemResponseSampler(PeerSampler):
    """Choose the K rows with the largest gain p (1 - p)^2 of a drawn pass rate; see the module for the belief.

    Args:
        features: (N, F).
        cooldown: steps for which a row rests whose group was not mixed, at least.
        even_rest: steps of an epoch: such a row rests for the share of it that even draws would give of live groups.
        mixture: whether a row may be unsolvable.
    """

    kind = "item response"

    def __init__(
        self, features: FloatArray, *, seed: int = 0, cooldown: int = 0, even_rest: int = 0, mixture: bool = False
    ) -> None:
        size = len(features)
        super().__init__(BetaPosterior(size, decay_unsampled=0.999, signal_aware_decay=True), seed, {})
        self._x = np.column_stack([features, np.ones(size)])
        self._cooldown, self._even_rest, self._mixture = cooldown, even_rest, mixture
        self._w, self._c = np.zeros(self._x.shape[1]), np.eye(self._x.shape[1])
        self._m, self._s, self._tau = np.zeros(size), np.ones(size), 1.0
        self._pi, self._solvable = np.full(size, 1.0 - SURE), 1.0 - SURE
        self._seen, self._live = np.zeros((2, size), dtype=np.bool_)
        self._last: deque[tuple[IntArray, FloatArray, FloatArray]] = deque(maxlen=STEPS)

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        s = np.where(self._seen, self._s, self._tau) + np.einsum("ni,ij,nj->n", self._x, self._c, self._x)
        rate = _sigmoid(self._x @ self._w + self._m + np.sqrt(s) * generator.standard_normal(len(s)))
        rate = np.where(generator.random(len(s)) < self._solvability(), rate, 0.0)
        rest = max(self._cooldown, round(self._even_rest * even_draw_ratio(self.posterior, 8)))
        last = self.posterior.last_update
        until = np.where(last > 0, last + np.where(self._live, SHORT_REST, rest), 0)
        value = rate * (1.0 - rate) ** 2 - np.maximum(until - self.posterior.step, 0)
        rows = np.flatnonzero(free)
        rows = rows[largest(value[rows], k)]
        return rows, rate[rows]

    def _expected(self, rows: IntArray) -> FloatArray:
        s = np.where(self._seen, self._s, self._tau)[rows]
        q = _sigmoid((self._x[rows] @ self._w + self._m[rows]) / np.sqrt(1.0 + np.pi * s / 8.0))
        return np.asarray(q * self._solvability()[rows])

    def _solvability(self) -> FloatArray:
        return np.where(self._seen, self._pi, self._solvable) if self._mixture else np.ones(len(self._pi))

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Fit w with the old difficulties, then learn those of the K rows."""
        super().observe(sample_index, successes, trials, mixed)
        rows, k, n = (np.asarray(each) for each in (sample_index, successes, trials))
        self._live[rows] = (k > 0) & (k < n)
        # A row's own evidence counts as much as the row is likely to be solvable.
        new = ~self._seen[rows]
        self._s[rows[new]], self._pi[rows[new]] = self._tau, self._solvable
        self._s[rows[~new]] += DRIFT
        if self._mixture:
            none = (1.0 - self._drawn(rows)) ** n[:, None]
            unlucky = self._pi[rows] * none.mean(axis=1)
            pi = np.where(k > 0, 1.0, unlucky / (unlucky + 1.0 - self._pi[rows]))
            self._pi[rows] = np.clip(pi, SURE, 1.0 - SURE)
        self._last.append((rows, k, n))
        self._fit()
        self._learn(rows, k, n * (self._pi[rows] if self._mixture else 1.0))
        self._seen[rows] = True
        seen = self._seen
        sure = self._pi[seen] if self._mixture else np.ones(np.count_nonzero(seen))
        spread = np.average(self._m[seen] ** 2 + self._s[seen], weights=sure)
        self._tau = float(np.clip(0.9 * self._tau + 0.1 * spread, LOWEST, HIGHEST))
        self._solvable = float(np.clip(0.9 * self._solvable + 0.1 * self._pi[seen].mean(), 0.2, 1.0 - SURE))

    def _drawn(self, rows: IntArray) -> FloatArray:
        """Return pass rates at 16 even quantiles of the belief about rows, (K, 16)."""
        logits = (self._x[rows] @ self._w + self._m[rows])[:, None] + np.sqrt(self._s[rows])[:, None] * QUANTILES
        return _sigmoid(logits)

    def _fit(self) -> None:
        rows, k, n = (np.concatenate(parts) for parts in zip(*self._last, strict=True))
        age = np.repeat(np.arange(len(self._last))[::-1], [len(part[0]) for part in self._last])
        weight = FADE**age * (self._pi[rows] if self._mixture else 1.0)
        x, scale = self._x[rows], 1.0 / np.sqrt(1.0 + np.pi * self._s[rows] / 8.0)
        for _ in range(20):
            q = _sigmoid((x @ self._w + self._m[rows]) * scale)
            slope = x.T @ (weight * scale * (k - n * q)) - 2.0 * RIDGE * self._w
            curvature = (x.T * (weight * scale**2 * n * q * (1.0 - q))) @ x + 2.0 * RIDGE * np.eye(len(self._w))
            step = np.linalg.solve(curvature, slope)
            self._w += np.clip(step, -2.0, 2.0)
            if np.abs(step).max() < 1e-4:
                break
        self._c = np.linalg.inv(curvature)

    def _learn(self, rows: IntArray, k: FloatArray, n: FloatArray) -> None:
        """Move the difficulties of rows to the mode of their posterior."""
        base, m0, s = self._x[rows] @ self._w, self._m[rows], self._s[rows]
        m = m0.copy()
        for _ in range(20):
            p = _sigmoid(base + m)
            step = (np.minimum(k, n) - n * p - (m - m0) / s) / (n * p * (1.0 - p) + 1.0 / s)
            m += np.clip(step, -2.0, 2.0)
            if np.abs(step).max() < 1e-4:
                break
        p = _sigmoid(base + m)
        self._m[rows], self._s[rows] = m, 1.0 / (1.0 / s + n * p * (1.0 - p))


def _sigmoid(logits: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -50.0, 50.0)))
