"""SEC: a bandit over kinds of task; kinds with larger advantages are drawn more often."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trl_vade.checks import FloatArray, IntArray, check_labels, check_outcomes, check_share
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.posterior import BetaPosterior

from .base import BoolArray, PeerSampler, mean_absolute_advantage, saved_numbers


class SECSampler(PeerSampler):
    """A sampler that draws a kind of task for each place of the batch, and then a row of that kind.

        P(kind c) = softmax(Q / temperature)_c
        Q_c <- Q_c + learning_rate (r_c - Q_c)    r_c = mean |advantage| of its completions, 0 without completions

    The rows of one draw are distinct. A kind without rows left is no longer drawn.

    Source: SEC, arXiv 2505.14970 and its code, with temperature 1.0 (Countdown), 0.4 (mathematics) or 0.2 (puzzles).
    Differences: the advantages are those of TRL for rewards of 0 and 1, for any reward of the trainer. The rows of a
    kind are drawn anew each time; the code draws all of them before one comes again.

    Args:
        num_samples: N, at least 1.
        task: (N,) the label of each row's kind, texts or whole numbers.
        seed: in [0, 2**63).
        learning_rate: the weight of the newest step in Q, in [0, 1].
        temperature: above 0; a small one draws only the best kind.
    """

    kind = "sec"
    bound = ("task",)  # Q has a value for each kind

    def __init__(
        self, num_samples: int, *, task: ArrayLike, seed: int = 0, learning_rate: float = 0.5, temperature: float = 1.0
    ) -> None:
        if not 0 < temperature < np.inf:
            raise ConfigurationError(f"temperature is {abbreviated(temperature)}; it must be above 0. Try 1.")
        posterior = BetaPosterior(num_samples)
        self._arm = check_labels("task", task, posterior.num_samples)  # (N,)
        self._q = np.zeros(self._arm.max() + 1)  # (number of kinds,) in [0, 1]
        settings = {
            "task": hashlib.sha256(self._arm.tobytes()).hexdigest(),
            "learning_rate": check_share("learning_rate", learning_rate),
            "temperature": float(temperature),
        }
        super().__init__(posterior, seed, settings)

    def observe(
        self, sample_index: ArrayLike, successes: ArrayLike, trials: ArrayLike, mixed: ArrayLike | None = None
    ) -> None:
        """Take one step of the posterior and of Q; see `BetaPosterior.observe`."""
        super().observe(sample_index, successes, trials, mixed)
        arms, (wins, tries) = self._arm[self.posterior.check_rows(sample_index)], check_outcomes(successes, trials)
        total = np.bincount(arms, weights=tries * mean_absolute_advantage(wins, tries), minlength=self._q.size)
        reward = total / np.maximum(np.bincount(arms, weights=tries, minlength=self._q.size), 1e-300)
        self._q += self._settings["learning_rate"] * (reward - self._q)

    def _choose(self, k: int, free: BoolArray, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
        taken = self._places(k, free, generator)
        kinds = np.flatnonzero(taken)
        rows = [generator.choice(np.flatnonzero(free & (self._arm == c)), taken[c], replace=False) for c in kinds]
        chosen = generator.permutation(np.concatenate(rows))
        return chosen, self._expected(chosen)

    def _places(self, k: int, free: BoolArray, generator: np.random.Generator) -> IntArray:
        """Draw how many of the K places each kind gets, (number of kinds,)."""
        left = np.bincount(self._arm[free], minlength=self._q.size)
        taken = np.zeros_like(left)
        while (missing := k - taken.sum()) > 0:  # each round is the last or uses up a kind
            q = np.where(left > taken, self._q, -np.inf)
            chance = np.exp((q - q.max()) / self._settings["temperature"])
            taken = np.minimum(taken + generator.multinomial(missing, chance / chance.sum()), left)
        return taken

    def _recall(self) -> dict[str, Any]:
        return {"q": self._q.tolist()}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        self._q = np.array(saved_numbers("q", memory["q"], float, low=0.0, high=1.0, size=self._q.size))
