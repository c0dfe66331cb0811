"""Watches over the outcomes of a run: reward outages, and generation batches that teach nothing.

In an outage a judge that is down gives every answer the same verdict, and raises no error. Twenty such batches would
erase the results of thousands of rollouts.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.samplers.information import spread_group_probability
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.priors import EVIDENCE

from .outcomes import GroupOutcomes

CHANCE = 1e-4  # Below it, equal verdicts are an outage. In 38,400 sound batches there was none by chance.
LIMIT = 20  # generation batches that are left out; a policy may really have collapsed
SURE = 1.0 - 1e-15  # the logarithm of a chance of 0 is no JSON value
DUE = (10, 100, 1000, 10_000, 100_000)  # successive generation batches that teach nothing, for a warning


class OutageGuard:
    """A guard against batches that `posterior` must not observe: all verdicts are alike, against what it expects."""

    def __init__(self, posterior: BetaPosterior):
        self._posterior = posterior
        self._verdict: str | None = None  # of the streak: every answer until now was "right", "wrong" or "alike"
        self._log_chance = 0.0  # of the streak
        self.left_out = 0  # batches of the streak since its chance is below `CHANCE`

    @property
    def active(self) -> bool:
        """Whether the last generation batch was left out."""
        return 0 < self.left_out <= LIMIT

    def judge(self, outcomes: GroupOutcomes, *, spreads: bool = False) -> str | None:
        """Set `active` for a batch, of `spreads` or pass rates, not observed yet; return a warning or None."""
        before, answers, verdict = self.left_out if self.active else 0, outcomes.trials.sum(), None
        if not answers:
            return None
        if not outcomes.successes.any():
            verdict = "alike" if spreads else "wrong"
        elif not spreads and (outcomes.successes == outcomes.trials).all():
            verdict = "right"
        if verdict != self._verdict:
            self._verdict, self._log_chance, self.left_out = verdict, 0.0, 0
        if verdict is None:
            return f"The reward outage of {before} generation batches is over." if before else None
        self._log_chance += self._log_chance_of(outcomes, verdict)
        self.left_out += self._log_chance < math.log(CHANCE)
        if self.left_out == 1:
            return (
                f"This looks like a reward outage: all {answers:.0f} answers of a generation batch are {verdict}, "
                f"with a chance below {CHANCE:g} by earlier results. Check the reward function (is a judge down, does "
                "a verifier time out, is a column missing?) and the policy. The posterior leaves such batches out "
                f"until the verdicts differ again, {LIMIT} at most."
            )
        if self.left_out == LIMIT + 1:
            return f"All answers of {LIMIT} generation batches are {verdict}: the posterior takes it for the truth."
        return None

    def _log_chance_of(self, outcomes: GroupOutcomes, verdict: str) -> float:
        alpha, beta = self._posterior.counts(outcomes.sample_index)
        known = (alpha + beta >= EVIDENCE) & (outcomes.trials > 0)
        a, b, trials = alpha[known] + 1.0, beta[known] + 1.0, outcomes.trials[known]
        if verdict == "alike":
            differ = spread_group_probability(a, b, int(trials.max(initial=1)))
            return float(np.log1p(-np.minimum(differ, SURE)).sum())
        hits = a if verdict == "right" else b
        place = np.arange(trials.max(initial=0))[:, None]  # Beta-binomial: E[p^n] = prod (a + j) / (a + b + j)
        return float(np.where(place < trials, np.log((hits + place) / (a + b + place)), 0.0).sum())

    def state_dict(self) -> dict[str, Any]:
        """Return the streak as JSON values."""
        return {"verdict": self._verdict, "log_chance": self._log_chance, "left_out": self.left_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`, or do nothing if `state` is empty."""
        if state:
            self._verdict, self._log_chance, self.left_out = (state[name] for name in self.state_dict())


class GradientWatch:
    """A watch for successive generation batches without a gradient, or with answers that all count alike."""

    def __init__(self) -> None:
        self._dead = self._alike = 0  # successive batches

    def observe(self, outcomes: GroupOutcomes, *, spreads: bool = False) -> str | None:
        """Count a generation batch and return a warning, or None. For `spreads` see `OutageGuard.judge`."""
        live, rates = bool(outcomes.has_gradient.any()), outcomes.pass_rate[outcomes.trials > 0]
        self._dead = 0 if live else self._dead + 1
        self._alike = self._alike + 1 if live and not spreads and not outcomes.is_mixed.any() else 0
        right = f"{rates.mean():.0%} of the answers are right" if rates.size else "none has a score"
        told = "" if spreads else f": {right}"
        if self._dead in DUE:
            return (
                f"No group has had a gradient for {self._dead} generation batches{told}. "
                "Check the reward function, temperature, top_k, and whether the rows are too easy or too hard."
            )
        if self._alike in DUE:
            return (
                f"The rewards differ, but in {self._alike} generation batches all answers of each group counted "
                f"alike{told}. Set vade_success_threshold to a reward that only some answers reach, or to 'spread'."
            )
        return None
