"""The guard against reward outages: a judge that is down gives every answer the same verdict, and raises no error.

An outage of 20 generation batches would erase the results of thousands of rollouts: with lambda_1 = 0.2 a row keeps a
fifth of its counts each time. So the posterior does not learn from what it holds for impossible.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import check_fields
from trl_vade.samplers.information import spread_group_probability
from trl_vade.samplers.posterior import BetaPosterior

from .outcomes import GroupOutcomes

CHANCE = 1e-4  # Below it, equal verdicts are an outage. In 38,400 sound batches there was none by chance.
LIMIT = 20  # generation batches that are left out; a policy may really have collapsed
EVIDENCE = 1.0  # the smallest alpha + beta of a row that predicts verdicts


class OutageGuard:
    """A guard that tells which generation batches `posterior` must not observe.

    These are batches in which all verdicts are alike, if the counts give such a streak a chance below `CHANCE`.
    """

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
        """Set `active` for a generation batch that was not observed yet, and return a warning or None.

        `spreads` tells whether the outcomes are spreads of rewards in place of pass rates.
        """
        if not outcomes.trials.sum():
            return None
        verdict = _verdict(outcomes, spreads)
        if verdict is None or verdict != self._verdict:
            was_active, batches = self.active, self.left_out
            self._verdict, self._log_chance, self.left_out = verdict, 0.0, 0
            if was_active and verdict is None:
                return f"The reward outage of {batches} generation batches is over. They are no part of the posterior."
        if verdict is None:
            return None
        self._log_chance += self._log_chance_of(outcomes, verdict)
        if self._log_chance >= math.log(CHANCE):
            return None
        self.left_out += 1
        if self.left_out == 1:
            return (
                f"This looks like a reward outage: all {outcomes.trials.sum():.0f} answers of a generation batch are "
                f"{verdict}. By the earlier results of these rows the chance of that is below {CHANCE:g}. Check the "
                "reward function (is a judge down, does a verifier time out, is a column missing?) and the policy. "
                f"The posterior leaves such batches out until the verdicts differ again, {LIMIT} at most."
            )
        if self.left_out == LIMIT + 1:
            return f"All answers of {LIMIT} generation batches are {verdict}: the posterior takes it for the truth."
        return None

    def _log_chance_of(self, outcomes: GroupOutcomes, verdict: str) -> float:
        alpha, beta = self._posterior.counts(outcomes.sample_index)
        known = (alpha + beta >= EVIDENCE) & (outcomes.trials > 0)
        a, b, trials = alpha[known] + 1.0, beta[known] + 1.0, outcomes.trials[known]
        if verdict == "alike":
            return float(np.log1p(-spread_group_probability(a, b, int(trials.max(initial=1)))).sum())
        hits = a if verdict == "right" else b
        place = np.arange(trials.max(initial=0))[:, None]  # Beta-binomial: E[p^n] = prod (a + j) / (a + b + j)
        return float(np.where(place < trials, np.log((hits + place) / (a + b + place)), 0.0).sum())

    def state_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"verdict": self._verdict, "log_chance": self._log_chance, "left_out": self.left_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; an empty state resets the guard. Others are a `SnapshotMismatchError`."""
        state = state or OutageGuard(self._posterior).state_dict()
        check_fields("outage guard", state, ["verdict", "log_chance", "left_out"])
        self._verdict, self._log_chance, self.left_out = state["verdict"], state["log_chance"], state["left_out"]


def _verdict(outcomes: GroupOutcomes, spreads: bool) -> str | None:
    if not outcomes.successes.any():
        return "alike" if spreads else "wrong"
    return "right" if not spreads and (outcomes.successes == outcomes.trials).all() else None
