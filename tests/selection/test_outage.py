"""The guard against reward outages: by hand, by properties, and on healthy runs that must raise no alarm."""

import json

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.marks import slow
from tests.support.refusals import refused
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.outage import LIMIT, OutageGuard


class Guarded:
    """A posterior under a guard, told of generation batches of 8 completions a row, and what the guard said."""

    def __init__(self, num_samples=32, **decays):
        self.posterior = BetaPosterior(num_samples, **decays)
        self.guard = OutageGuard(self.posterior)
        self.notices = []

    def observe(self, rows, successes, trials=8.0):
        """One generation batch; returns the step whose counts were put back, if any."""
        rows = np.asarray(rows, dtype=np.int64)
        successes, trials = (np.broadcast_to(np.asarray(x, dtype=float), rows.shape) for x in (successes, trials))
        notice = self.guard.before_observing(rows, successes, trials)
        self.notices += [notice] if notice else []
        self.posterior.observe(rows, successes, trials)
        return self.guard.restored_to

    def reloaded(self):
        """The same in a new process: the guard's state has been through JSON."""
        other = Guarded(self.posterior.num_samples, **self.posterior.decays)
        other.posterior.load_state_dict(self.posterior.state_dict())
        other.guard.load_state_dict(json.loads(json.dumps(self.guard.state_dict(), allow_nan=False)))
        return other


def assert_same_posterior(ours, theirs):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, np.ndarray):
            assert value.tobytes() == theirs[name].tobytes(), name
        else:
            assert value == theirs[name], name


def copy_of(posterior):
    copy = BetaPosterior(posterior.num_samples, **posterior.decays)
    copy.load_state_dict(posterior.state_dict())
    return copy


def learned(successes=4.0, num_samples=32, **decays):
    """Two generation batches over all rows but the last four, of which nothing is known."""
    run = Guarded(num_samples, **decays)
    for _ in range(2):
        run.observe(np.arange(num_samples - 4), successes)
    return run


EIGHT = np.arange(8)  # 64 verdicts: of pass rate 1/2, 32 right ones are expected


# ---------------------------------------------------------------------------------------------- worked out by hand


@pytest.mark.parametrize(("verdict", "name", "other"), [(0.0, "wrong", "right"), (8.0, "right", "wrong")])
def test_an_outage_is_named_when_twenty_verdicts_are_missing_and_undone_when_they_return(verdict, name, other):
    run = learned()
    before = copy_of(run.posterior)
    two = np.arange(2)
    # In the first batch no row was known; the second brought 112 verdicts of each kind. With 20 more of the other kind
    # the rate is 112 / 244 = 0.459, below the rows' own 1/2. A batch of two rows misses 16 * 0.459 = 7.3 verdicts, so
    # the third batch makes it 22, more than 20.
    for batch in range(1, 6):
        assert run.observe(two, verdict) is None
        assert run.guard.active is (batch >= 3)
    (notice,) = run.notices
    assert f"all answers of the last 3 generation batches are {name}" in notice
    assert f"22 {other} ones" in notice
    assert "generation batch 2 are kept for 100" in notice

    assert run.observe(two, 4.0) == 2
    assert run.guard.active is False
    assert (
        "outage of 5 generation batches is over (success rate 0.50). The counts of generation batch 2 are restored"
        in (run.notices[1])
    )
    # Equation 5 on the counts of before, (4.8, 4.8), after five steps of equation 6; the other rows have had six.
    assert before.alpha[0] == pytest.approx(0.2 * 4 + 4)
    assert run.posterior.alpha[:2] == pytest.approx([0.2 * 0.999**5 * 4.8 + 4] * 2, rel=1e-14)
    assert run.posterior.beta[2:28] == pytest.approx([0.999**6 * 4.8] * 26, rel=1e-14)
    assert run.posterior.visits.tolist() == [3, 3] + [2] * 26 + [0] * 4
    assert run.posterior.step == 8
    assert run.observe(two, 4.0) is None  # said once


def test_a_collapse_of_too_few_verdicts_is_mere_suspicion_and_changes_nothing():
    run, plain = learned(), learned().posterior
    for successes in (0.0, 0.0, 4.0, 0.0, 4.0):
        run.observe([0, 1], successes)
        plain.observe([0, 1], [successes] * 2, [8.0] * 2)
        assert not run.guard.active
    assert run.notices == []
    assert_same_posterior(run.posterior, plain)


@pytest.mark.parametrize(("right", "seen"), [(2.0, True), (4.0, False)])
def test_a_tenth_of_what_was_expected_is_still_a_collapse_and_more_is_none(right, seen):
    run = learned()
    successes = np.zeros(8)
    successes[0] = right  # of 64 verdicts, of which 29.4 right ones were expected
    run.observe(EIGHT, successes)
    assert run.guard.active is seen


@pytest.mark.parametrize("counts", ["hard", "mastered"])
def test_rows_that_are_just_hard_or_mastered_raise_no_alarm(counts):
    hard = counts == "hard"
    run = learned(0.5 if hard else 7.5)  # 1/16 of the verdicts are of the rarer kind
    for _ in range(30):
        run.observe(np.arange(28), 0.0 if hard else 8.0)
    assert run.notices == []
    assert run.guard.state_dict()["streak"] is None


def test_rows_of_which_nothing_is_known_raise_no_alarm():
    run = Guarded(64)
    run.observe(EIGHT, 4.0)
    for start in range(8, 64, 8):
        run.observe(EIGHT + start, 0.0)
    assert run.notices == []
    assert run.guard.state_dict()["streak"] is None


def test_wrong_answers_to_new_rows_do_not_hide_right_ones_to_known_rows():
    run = learned()
    successes = np.zeros(32)
    successes[:4] = 4.0
    run.observe([0, 1, 2, 3, *range(4, 32)], successes, np.array([8.0] * 4 + [0.0] * 24 + [80.0] * 4))
    # Only 16 of 352 verdicts are right, and of those on known rows 16 of 32: just what was expected.
    assert run.guard.state_dict()["streak"] is None


def test_recent_verdicts_fade_with_those_that_follow_whatever_is_suspected():
    run = learned()
    assert run.guard.state_dict()["recent"] == [112.0, 112.0]
    run.observe([0, 1], 0.0)
    assert run.guard.state_dict()["streak"] is not None
    assert run.guard.state_dict()["recent"] == pytest.approx([112 * 64 / 80 + 16, 112 * 64 / 80])
    run.observe([2], 8.0)
    assert run.guard.state_dict()["streak"] is None
    assert run.guard.state_dict()["recent"] == pytest.approx([105.6 * 64 / 72, 89.6 * 64 / 72 + 8])


def test_recent_verdicts_are_not_believed_either_where_the_rows_are_known_to_be_hard():
    run = Guarded()
    for _ in range(2):
        run.observe(np.arange(32), np.repeat([6.0, 0.0], [24, 8]))
    for _ in range(20):
        run.observe(np.arange(24, 32), 0.0)
    assert run.notices == []
    assert run.guard.state_dict()["streak"] is None


def test_what_hard_rows_bring_within_a_streak_is_not_missing():
    run = Guarded()
    for _ in range(2):
        run.observe(np.arange(32), np.repeat([6.0, 0.0], [24, 8]))
    run.observe([0], 0.0)
    assert run.guard.state_dict()["streak"] is not None
    for _ in range(20):
        run.observe(np.arange(24, 32), 0.0)
    assert run.notices == []


@pytest.mark.parametrize(("empty_steps", "seen"), [(2, True), (4, False)])
def test_rows_whose_counts_have_faded_say_nothing(empty_steps, seen):
    run = learned(decay_unsampled=0.5)  # 9.6 counts each: 2.4 after two steps without them, and 0.6 after four
    for _ in range(empty_steps):
        run.observe([], 0.0)
    run.observe(EIGHT, 0.0)
    assert run.guard.active is seen


def test_the_counts_alone_are_not_believed_where_the_batches_before_brought_less():
    """The winner's curse: rows that are chosen because they were lucky."""
    run = Guarded(64)
    for start in range(0, 64, 8):  # one row in eight had one right answer
        run.observe(EIGHT + start, [4.0] + [0.0] * 7)
    lucky = np.arange(0, 64, 8)
    run.observe(lucky, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])  # half of the answers should have been right
    state = run.guard.state_dict()
    assert state["recent"] == pytest.approx([62.0, 2.0])  # no other row was known
    for _ in range(4):
        run.observe(lucky, 0.0)
    assert run.notices == []
    assert run.guard.state_dict()["streak"] is None


def test_a_right_answer_to_a_new_row_ends_an_outage_too():
    run = learned()
    run.observe(EIGHT, 0.0)
    assert run.guard.active
    assert run.observe([28, 29], [8.0, 0.0]) == 2
    assert run.posterior.visits[28:].tolist() == [1, 1, 0, 0]


def test_rows_first_seen_in_an_outage_are_unseen_after_it():
    run = learned()
    run.observe([*EIGHT, 30], 0.0)
    assert run.posterior.visits[30] == 1
    assert run.observe([1], 4.0) == 2
    assert run.posterior.visits[30] == run.posterior.beta[30] == 0
    assert run.posterior.posterior_mean[30] == 0.5


def test_a_batch_without_any_score_neither_begins_nor_ends_anything():
    run = learned()
    run.observe(EIGHT, 0.0, 0.0)
    assert run.guard.state_dict()["streak"] is None
    run.observe(EIGHT, 0.0)
    state = run.guard.state_dict()
    for _ in range(3):
        assert run.observe(EIGHT, 0.0, 0.0) is None
    assert run.guard.state_dict() == state
    assert run.observe(EIGHT, 4.0) == 3
    assert len(run.notices) == 2


def test_restored_to_is_of_the_last_batch_only():
    run = learned()
    run.observe(EIGHT, 0.0)
    assert run.observe(EIGHT, 4.0) == 2
    assert run.observe(EIGHT, 0.0, 0.0) is None


def test_a_second_outage_is_seen_after_one_sound_batch():
    run = learned()
    run.observe(EIGHT, 0.0)
    assert run.observe(np.arange(28), 4.0) == 2
    after_the_first = copy_of(run.posterior)
    run.observe(EIGHT, 0.0)
    assert run.guard.active
    run.guard.before_observing(EIGHT, np.full(8, 4.0), np.full(8, 8.0))
    assert run.guard.restored_to == 4
    assert run.posterior.step == 5
    after_the_first.observe([], [], [])
    assert run.posterior.alpha.tolist() == after_the_first.alpha.tolist()


# ----------------------------------------------------------------------------------------------------- the limit


def test_what_does_not_return_for_a_hundred_batches_is_the_truth():
    run, plain = learned(), learned().posterior
    for batch in range(1, LIMIT + 20):
        run.observe(EIGHT, 0.0)
        plain.observe(EIGHT, np.zeros(8), np.full(8, 8.0))
        assert run.guard.active is (batch <= LIMIT)
    assert len(run.notices) == 2
    assert "takes it for the truth" in run.notices[1]
    assert run.observe(EIGHT, 4.0) is None
    plain.observe(EIGHT, np.full(8, 4.0), np.full(8, 8.0))
    assert_same_posterior(run.posterior, plain)


def test_the_counts_come_back_in_the_last_batch_within_the_limit():
    run = learned()
    for _ in range(LIMIT):
        run.observe(EIGHT, 0.0)
    assert run.observe(EIGHT, 4.0) == 2


def test_a_suspicion_that_was_never_voiced_is_given_up_in_silence():
    run = learned()
    run.observe([0, 1], 0.0)
    assert run.guard.state_dict()["streak"] is not None
    for _ in range(LIMIT):
        run.observe([30], 0.0)  # of this row nothing was known, so nothing is missing
    assert run.guard.state_dict()["streak"] is None
    assert run.notices == []


# ------------------------------------------------------------------------------------------------------- properties


def outcomes(seed, scored, num_samples):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(num_samples)[: rng.integers(1, num_samples // 2 + 1)]
    trials = rng.integers(0, 9, size=rows.size) * 4.0
    successes = {"all wrong": 0.0 * trials, "all right": trials, "unscored": 0.0 * trials}.get(
        scored, rng.binomial(trials.astype(int), 0.4).astype(float)
    )
    return rows, successes, 0.0 * trials if scored == "unscored" else trials


class RunWithOutages(RuleBasedStateMachine):
    """Against an oracle that keeps a copy of the posterior after every batch, and replays what was dropped."""

    def __init__(self):
        super().__init__()
        self.run = Guarded(16, decay_sampled=0.5, decay_unsampled=0.9)
        self.after = [copy_of(self.run.posterior)]  # by step

    def observe(self, batch):
        plain = copy_of(self.run.posterior)
        was_active = self.run.guard.active
        restored_to = self.run.observe(*batch)
        if restored_to is not None:
            assert was_active
            plain = copy_of(self.after[restored_to])
            for _ in range(len(self.after) - 1 - restored_to):
                plain.observe([], [], [])
        plain.observe(*batch)
        # Step by step and all at once, the decay differs in the last bits.
        np.testing.assert_allclose(self.run.posterior.alpha, plain.alpha, rtol=1e-12)
        np.testing.assert_allclose(self.run.posterior.beta, plain.beta, rtol=1e-12)
        assert self.run.posterior.visits.tolist() == plain.visits.tolist()
        if restored_to is None:
            assert_same_posterior(self.run.posterior, plain)
        self.after.append(copy_of(self.run.posterior))

    @rule(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3))
    def sound(self, seed, count):
        for i in range(count):
            self.observe(outcomes(seed + i, "sound", 16))

    @precondition(lambda self: self.run.posterior.step > 2)
    @rule(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 8), verdict=st.sampled_from(["all wrong", "all right"]))
    def outage(self, seed, count, verdict):
        for i in range(count):
            self.observe(outcomes(seed + i, verdict, 16))

    @rule(seed=st.integers(0, 2**32 - 1))
    def unscored(self, seed):
        self.observe(outcomes(seed, "unscored", 16))

    @rule()
    def resume(self):
        before = self.run
        self.run = before.reloaded()
        assert self.run.guard.state_dict() == before.guard.state_dict()
        assert_same_posterior(self.run.posterior, before.posterior)

    @invariant()
    def an_active_guard_has_counts_in_reach(self):
        assert not self.run.guard.active or self.run.guard.state_dict()["streak"]["step"] < len(self.after) - 1


TestRunWithOutages = RunWithOutages.TestCase
TestRunWithOutages.settings = settings(deadline=None, derandomize=True, max_examples=20, stateful_step_count=20)


# ------------------------------------------------------------------------------------------------- saving, loading


def test_the_state_of_a_streak_holds_the_touched_rows_alone():
    run = learned()
    run.observe([3, 1, 30], 0.0)
    streak = run.guard.state_dict()["streak"]
    assert streak["step"] == 2
    assert streak["missing"] == 1
    assert streak["counts"]["sample_index"] == [1, 3]  # row 30 was new
    assert streak["counts"]["alpha"] == [0.2 * 4.0 * 1.0 + 4.0] * 2
    assert streak["counts"]["last_update"] == streak["counts"]["visits"] == [2, 2]


def test_an_empty_state_is_that_of_a_guard_that_has_seen_nothing():
    run = learned()
    run.observe(EIGHT, 0.0)
    assert run.guard.active
    run.guard.load_state_dict({})
    assert run.guard.state_dict() == OutageGuard(run.posterior).state_dict()
    assert not run.guard.active
    assert run.observe(EIGHT, 4.0) is None


def test_a_broken_state_is_refused_and_changes_nothing():
    run = learned()
    run.observe(EIGHT, 0.0)
    state = run.guard.state_dict()
    streak = state["streak"]
    without_rate = {name: value for name, value in streak.items() if name != "rate"}
    negative = streak["counts"] | {"alpha": [-1.0] * 8}
    for broken, error, reason in [
        ({"recent": [0.0, 0.0]}, SnapshotMismatchError, "streak"),
        (state | {"streak": without_rate}, SnapshotMismatchError, "rate"),
        (state | {"streak": streak | {"counts": negative}}, SnapshotCorruptError, "alpha"),
    ]:
        with refused(error, names=[reason]):
            run.guard.load_state_dict(broken)
        assert run.guard.state_dict() == state
        assert run.guard.active


# ----------------------------------------------------------------------------------- healthy runs, and sick ones


def pools(num_rows, rng):
    kind = rng.integers(5, size=num_rows)
    mixed = np.choose(kind, [0 * kind, *(rng.uniform(*bounds, num_rows) for bounds in BOUNDS)])
    return {
        "mixed": mixed,
        "hard": np.full(num_rows, 0.01),
        "hard but for a few": np.where(rng.random(num_rows) < 0.03, 0.4, 0.01),
        "impossible but for a few": np.where(rng.random(num_rows) < 0.02, 0.5, 0.0),
        "mastered": np.full(num_rows, 0.99),
        "mastered but for a few": rng.beta(6, 0.3, num_rows),
        "improving": mixed,
        "improving from 0.01": np.full(num_rows, 0.01),
    }


BOUNDS = ((0.02, 0.2), (0.2, 0.6), (0.6, 0.95), (0.97, 1.0))
SAMPLERS = {
    "the paper's rule": ThompsonSampler,
    "symmetric": lambda num, **seed: ThompsonSampler(num, gain="symmetric", decay_sampled=0.9, **seed),
    "greedy": lambda num, **seed: ThompsonSampler(num, greedy=True, **seed),
    "uniform": UniformSampler,
}


def simulate(sampler, rates, num_groups, generations, num_steps, seed, *, a_step=0.0, outage=(), verdict=0.0):
    """Generation batches that began an outage, and (batch, restored_to) where one ended."""
    rng, guard = np.random.default_rng(seed), OutageGuard(sampler.posterior)
    begun, ended, trials = [], [], np.full(num_groups, float(generations))
    for step in range(num_steps):
        rows = sampler.draw(num_groups).sample_index
        with np.errstate(divide="ignore"):
            now = 1 / (1 + (1 / rates[rows] - 1) * np.exp(-a_step * step))  # the logit grows by a_step
        successes = rng.binomial(generations, now).astype(float)
        was_active = guard.active
        guard.before_observing(rows, trials * verdict if step in outage else successes, trials)
        begun += [step] if guard.active and not was_active else []
        ended += [(step, guard.restored_to)] if guard.restored_to is not None else []
        sampler.observe(rows, trials * verdict if step in outage else successes, trials)
    return begun, ended


@pytest.mark.parametrize("seeds", [(0,), slow((1, 2))], ids=str)
@pytest.mark.parametrize(("num_rows", "num_groups", "generations", "num_steps"), [(600, 64, 8, 80), (60, 4, 8, 150)])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_healthy_runs_raise_no_alarm(kind, num_rows, num_groups, generations, num_steps, seeds):
    """By the counts alone, without the recent verdicts, some of these did.

    A policy that learns even faster for the size of its batches can still raise one; see eval/LOG.md.
    """
    for seed in seeds:
        for name, rates in pools(num_rows, np.random.default_rng(seed)).items():
            sampler = SAMPLERS[kind](num_rows, seed=seed)
            growth = (0.1 if num_groups == 64 else 0.03) if name.startswith("improving") else 0.0
            run = simulate(sampler, rates, num_groups, generations, num_steps, seed, a_step=growth)
            assert run == ([], []), (name, seed)


@pytest.mark.parametrize("seeds", [(0,), slow((1, 2))], ids=str)
@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("num_groups", [2, 3])
def test_healthy_runs_of_tiny_generation_batches_raise_no_alarm(kind, num_groups, seeds):
    for seed in seeds:
        for name, rates in pools(40, np.random.default_rng(seed)).items():
            if not name.startswith("improving"):
                run = simulate(SAMPLERS[kind](40, seed=seed), rates, num_groups, 4, 200, seed)
                assert run == ([], []), (name, seed)


@pytest.mark.parametrize("seeds", [(0,), slow((1, 2))], ids=str)
@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("verdict", [0.0, 1.0])
@pytest.mark.parametrize(("num_rows", "num_groups"), [(600, 64), (60, 4)])
def test_an_outage_of_twenty_batches_on_a_mixed_pool_is_seen_and_undone_at_once(
    kind, verdict, num_rows, num_groups, seeds
):
    for seed in seeds:
        rates = pools(num_rows, np.random.default_rng(seed))["mixed"]
        begun, ended = simulate(
            SAMPLERS[kind](num_rows, seed=seed),
            rates, num_groups, 8, 110, seed, outage=range(80, 100), verdict=verdict,
        )  # fmt: skip
        assert len(begun) == len(ended) == 1
        assert 80 <= begun[0] < (81 if num_groups == 64 else 90)
        assert 100 <= ended[0][0] <= (105 if kind == "greedy" else 101)  # greedy may have turned to hopeless rows
        assert ended[0][1] == 80
