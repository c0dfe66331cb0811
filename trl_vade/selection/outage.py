"""The guard against reward outages: all verdicts suddenly become the same, although the posterior expects others.

Examples are a judge that is down, a verifier that times out, or a lost answer column. The reward function then returns
0 (or 1) for everything and raises no error. An outage of 20 generation batches would erase the results of thousands of
rollouts: with lambda_1 = 0.2 a row keeps a fifth of its counts each time. But the posterior cannot ignore such
batches, because a collapsed policy looks the same at first.

So the posterior observes them, and the guard keeps the earlier counts. When the verdicts return, the guard restores
these counts. After `LIMIT` generation batches it accepts the new verdicts.

The expected verdicts are the lower of two estimates: one from the counts of the rows, one from recent batches. The
counts alone expect too much, because a sampler prefers lucky rows, and they lag behind a learning policy. The guard
misses an outage that lets more than a tenth of the expected verdicts through.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_fields
from trl_vade.samplers.posterior import STATE_ARRAYS, BetaPosterior, posterior_from

COLLAPSE = 0.1  # the largest share of the expected verdicts of a kind (right, wrong) that counts as a collapse
ENOUGH = 20.0  # the number of missing verdicts before an outage is reported
RARE = 0.1  # The smallest expected share of a kind for a collapse. Below it the rows are just hard, or easy.
WINDOW = 64.0
"""The approximate number of verdicts that the recent ones reach back beyond the last generation batch.

The counts alone raised false alarms for lucky rows of pass rate 0.01 and for a policy that soon solves all rows."""
LIMIT = 100  # the number of generation batches after which the new verdicts are accepted
EVIDENCE = 1.0  # the smallest alpha + beta of a row that predicts verdicts

_KINDS = ("wrong", "right")
_STREAK = ("step", "missing", "rate", "expected", "active", "counts")


class OutageGuard:
    """A guard that keeps the counts of `posterior` from before a suspected outage and restores them at its end."""

    def __init__(self, posterior: BetaPosterior):
        self._posterior = posterior
        self._recent = np.zeros(2)  # wrong and right verdicts on known rows, older ones with less weight
        self._before: BetaPosterior | None = None  # the counts before the first suspicious batch
        self._missing = 0  # the missing kind of verdict: 0 (wrong) or 1 (right)
        self._rate = 0.0  # the share of that kind that was expected at the start
        self._expected = 0.0  # the number of that kind expected since then
        self.active = False  # whether an outage was reported and is still on
        self.restored_to: int | None = None  # the step of the counts that the last `before_observing` restored

    def before_observing(self, sample_index: IntArray, successes: FloatArray, trials: FloatArray) -> str | None:
        """Check the outcomes of a generation batch before the posterior observes them, and return a warning or None.

        At the end of an outage the call restores the earlier counts of the posterior. The arguments are those of
        `BetaPosterior.observe`, (K,) each.
        """
        self.restored_to = None
        if not trials.sum():
            return None
        alpha, beta = (self._before or self._posterior).counts(sample_index)
        known = (alpha + beta >= EVIDENCE) & (trials > 0)
        weight = trials[known] / (alpha[known] + beta[known])
        expected = np.array([(weight * beta[known]).sum(), (weight * alpha[known]).sum()])
        came = np.array([(trials - successes)[known].sum(), successes[known].sum()])
        success_rate = float(successes.sum() / trials.sum())  # of all rows: any success proves that rewards work

        notice = None
        if self._before is None:
            self._begin(expected, came)
        elif (success_rate if self._missing else 1.0 - success_rate) > COLLAPSE * self._rate:
            notice = self._end(self._before, success_rate)
        if self._before is not None:
            self._expected += float(min(expected[self._missing], self._rate * came.sum()))
            notice = self._go_on(self._before)
        self._recent = WINDOW / (WINDOW + came.sum()) * self._recent + came
        return notice

    def state_dict(self) -> dict[str, Any]:
        """Return JSON values; `streak` holds the earlier counts of rows observed since the first suspicious batch."""
        state: dict[str, Any] = {"recent": self._recent.tolist(), "streak": None}
        if self._before is not None:
            now, before = self._posterior.state_dict(), self._before.state_dict()
            touched = np.isin(before["sample_index"], now["sample_index"][now["last_update"] > before["step"]])
            counts = {name: before[name][touched].tolist() for name in STATE_ARRAYS}
            values = (before["step"], self._missing, self._rate, self._expected, self.active, counts)
            state["streak"] = dict(zip(_STREAK, values, strict=True))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; the posterior must have loaded its state of the same step.

        An empty state resets the guard. On an error nothing changes.

        Raises:
            SnapshotMismatchError: the fields differ.
            SnapshotCorruptError: no run can have saved these counts.
        """
        loaded = OutageGuard(self._posterior)
        if state:
            check_fields("outage guard", state, ["recent", "streak"])
            loaded._recent = np.array(state["recent"], dtype=np.float64)
            if state["streak"] is not None:
                loaded._load_streak(state["streak"])
        vars(self).update(vars(loaded))

    def _load_streak(self, streak: Mapping[str, Any]) -> None:
        check_fields("streak of the outage guard", streak, _STREAK)
        now = self._posterior.state_dict()
        untouched = now["last_update"] <= streak["step"]
        arrays = {
            name: np.concatenate([now[name][untouched], np.array(streak["counts"][name], dtype=now[name].dtype)])
            for name in STATE_ARRAYS
        }
        order = np.argsort(arrays["sample_index"])
        before = {**now, **{name: array[order] for name, array in arrays.items()}, "step": streak["step"]}
        self._before = posterior_from(before)
        self._missing, self._rate = int(streak["missing"]), float(streak["rate"])
        self._expected, self.active = float(streak["expected"]), bool(streak["active"])

    def _begin(self, expected: FloatArray, came: FloatArray) -> None:
        """Keep the present counts if the verdicts of one kind have collapsed."""
        if not came.sum():
            return
        # ENOUGH in the denominator keeps a few recent verdicts from counting too much.
        rates = np.minimum(expected / came.sum(), self._recent / (self._recent.sum() + ENOUGH))
        collapsed = np.flatnonzero((rates >= RARE) & (came <= COLLAPSE * rates * came.sum()))
        if collapsed.size:  # at most 1: both kinds cannot collapse at once
            self._before = posterior_from(self._posterior.state_dict())
            self._missing = int(collapsed[0])
            self._rate = float(rates[self._missing])

    def _go_on(self, before: BetaPosterior) -> str | None:
        num_batches = self._posterior.step - before.step + 1
        answers = f"(almost) all answers of the last {num_batches} generation batches are {_KINDS[1 - self._missing]}"
        if num_batches > LIMIT:
            was_active = self.active
            self._forget()
            accepted = f"The reward outage has lasted {LIMIT} generation batches, so the guard takes it for the truth"
            return f"{accepted}: {answers}. The earlier counts are dropped." if was_active else None
        if self.active or self._expected < ENOUGH:
            return None
        self.active = True
        return (
            f"This looks like a reward outage: {answers}. From earlier results of these rows {self._expected:.0f} "
            f"{_KINDS[self._missing]} ones were expected. Check the reward function (is a judge down, does a verifier "
            "time out, is a column missing?) and the policy. The posterior goes on learning. Its counts of generation "
            f"batch {before.step} are kept for {LIMIT} generation batches and restored when the verdicts return."
        )

    def _end(self, before: BetaPosterior, success_rate: float) -> str | None:
        num_batches, was_active = self._posterior.step - before.step, self.active
        self._forget()
        if not was_active:
            return None
        self._posterior.load_state_dict({**before.state_dict(), "step": self._posterior.step})
        self.restored_to = before.step
        return (
            f"The reward outage of {num_batches} generation batches is over (success rate {success_rate:.2f}). The "
            f"counts of generation batch {before.step} are restored, and later outcomes are dropped."
        )

    def _forget(self) -> None:
        self._before, self._missing, self._rate, self._expected, self.active = None, 0, 0.0, 0.0, False
