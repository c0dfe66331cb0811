"""A reward outage: from one generation batch on, every verdict is the same, against all that is known of the rows.

A judge that is down, a verifier that times out, an answer column that got lost: the reward function answers 0 (or 1)
to everything and raises nothing. Observed as it stands, an outage of 20 generation batches overwrites what thousands
of rollouts have taught: with lambda_1 = 0.2 a row keeps a fifth of its counts each time. Nor can the posterior ignore
such batches, because a policy that did collapse looks the same at first.

So the posterior observes them, and the guard keeps the counts of before in reach. When the verdicts return it puts
these back; when they do not, for `LIMIT` generation batches, they are taken for the truth.

What should have come is read twice, from the counts of the rows and from the batches before, and the lower figure
holds: counts alone promise too much, since a sampler goes for rows that were lucky, and lag behind a policy that
learns. An outage that leaves more than a tenth of the expected verdicts standing is not seen.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray, check_fields
from trl_vade.samplers.counts import STATE_ARRAYS
from trl_vade.samplers.posterior import BetaPosterior, posterior_from

COLLAPSE = 0.1
"""Verdicts of a kind (right, wrong) have collapsed when no more than this share of those expected came."""
ENOUGH = 20.0
"""Verdicts that must have been expected, and not come, before this is called an outage."""
RARE = 0.1
"""No collapse where a smaller share of the verdicts was to be of the kind: the rows are just hard, or easy."""
WINDOW = 64.0
"""How many verdicts the recent ones reach back beyond the last generation batch, about.

Without them, by the counts alone, lucky rows of pass rate 0.01 and a policy that soon solves all raised alarms."""
LIMIT = 100
"""Generation batches after which an outage is taken for the truth."""
EVIDENCE = 1.0
"""Rows with fewer counts than this say nothing about what to expect."""

_KINDS = ("wrong", "right")
_STREAK = ("step", "missing", "rate", "expected", "active", "counts")


class OutageGuard:
    """Keeps the counts of before a suspected outage, and puts them back at its end.

    Args:
        posterior: the one to guard; the guard changes it at the end of an outage only.

    Attributes:
        active: whether an outage is on, beyond mere suspicion.
        restored_to: after `before_observing`, the step whose counts were put back by that call, else None.
    """

    def __init__(self, posterior: BetaPosterior):
        self._posterior = posterior
        self._recent = np.zeros(2)  # wrong and right verdicts on known rows of late, the older the less
        self._before: BetaPosterior | None = None  # the counts of before the first suspicious batch
        self._missing = 0  # the kind of verdict that does not come, 0 (wrong) or 1 (right)
        self._rate = 0.0  # share of the verdicts that was expected to be of that kind when it began
        self._expected = 0.0  # verdicts of that kind that were expected since
        self.active = False
        self.restored_to: int | None = None

    def before_observing(self, sample_index: IntArray, successes: FloatArray, trials: FloatArray) -> str | None:
        """Look at the outcomes of a generation batch, (K,) each, before the posterior does; return what is to be said.

        At the end of an outage this puts the counts of before back, so that the outcomes are observed on top of them.
        """
        self.restored_to = None
        if not trials.sum():
            return None
        alpha, beta = (self._before or self._posterior).counts(sample_index)
        known = (alpha + beta >= EVIDENCE) & (trials > 0)
        weight = trials[known] / (alpha[known] + beta[known])
        expected = np.array([(weight * beta[known]).sum(), (weight * alpha[known]).sum()])
        came = np.array([(trials - successes)[known].sum(), successes[known].sum()])
        success_rate = float(successes.sum() / trials.sum())  # of all rows: whatever comes shows that rewards work

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
        """Return JSON values; `streak` holds what the rows observed since the first suspicious batch were before."""
        state: dict[str, Any] = {"recent": self._recent.tolist(), "streak": None}
        if self._before is not None:
            now, before = self._posterior.state_dict(), self._before.state_dict()
            touched = np.isin(before["sample_index"], now["sample_index"][now["last_update"] > before["step"]])
            counts = {name: before[name][touched].tolist() for name in STATE_ARRAYS}
            values = (before["step"], self._missing, self._rate, self._expected, self.active, counts)
            state["streak"] = dict(zip(_STREAK, values, strict=True))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned, after the posterior has taken over its own state of that moment.

        An empty state is that of a guard that has seen nothing. On an error nothing changes.

        Raises:
            SnapshotMismatchError: other fields.
            SnapshotCorruptError: counts that no run can have saved.
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
        """Suspect an outage where the verdicts of one kind have collapsed."""
        if not came.sum():
            return
        # A few recent verdicts say little. They count as if ENOUGH more had come, of the other kind.
        rates = np.minimum(expected / came.sum(), self._recent / (self._recent.sum() + ENOUGH))
        collapsed = np.flatnonzero((rates >= RARE) & (came <= COLLAPSE * rates * came.sum()))
        if collapsed.size:  # 1: both cannot have
            self._before = posterior_from(self._posterior.state_dict())
            self._missing = int(collapsed[0])
            self._rate = float(rates[self._missing])

    def _go_on(self, before: BetaPosterior) -> str | None:
        num_batches = self._posterior.step - before.step + 1
        answers = f"(almost) all answers of the last {num_batches} generation batches are {_KINDS[1 - self._missing]}"
        if num_batches > LIMIT:
            was_active = self.active
            self._forget()
            truth = f"No longer taken for a reward outage but for the truth: {answers}. The counts of before are gone."
            return truth if was_active else None
        if self.active or self._expected < ENOUGH:
            return None
        self.active = True
        return (
            f"This looks like a reward outage: {answers}, where {self._expected:.0f} {_KINDS[self._missing]} ones "
            "were expected from what the same rows did before. Look at the reward function (a judge that is down, a "
            "verifier that times out, a column that is missing) and at the policy. The posterior follows what it is "
            f"told; its counts of generation batch {before.step} are kept for {LIMIT} generation batches and put back "
            "when the verdicts return. vade_outage_guard=False turns this off."
        )

    def _end(self, before: BetaPosterior, success_rate: float) -> str | None:
        num_batches, was_active = self._posterior.step - before.step, self.active
        self._forget()
        if not was_active:
            return None
        self._posterior.load_state_dict({**before.state_dict(), "step": self._posterior.step})
        self.restored_to = before.step
        return (
            f"The reward outage of {num_batches} generation batches is over (success rate {success_rate:.2f}): the "
            f"counts of generation batch {before.step} are back, and what was observed since is dropped."
        )

    def _forget(self) -> None:
        self._before, self._missing, self._rate, self._expected, self.active = None, 0, 0.0, 0.0, False
