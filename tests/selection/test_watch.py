"""What a run's watches say and leave out: reward outages, and generation batches that teach nothing."""

import json

import numpy as np
import pytest
from scipy.special import betaln

from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.samplers.thompson import ThompsonSampler
from trl_vade.selection.outcomes import GroupOutcomes, group_outcomes
from trl_vade.selection.watch import LIMIT, GradientWatch, OutageGuard

ROWS = np.arange(6)
NAN = float("nan")


def batch(successes, trials=4.0, rows=ROWS):
    successes, trials = np.broadcast_to(successes, rows.shape).astype(float), np.full(rows.shape, float(trials))
    return GroupOutcomes(rows, successes, trials, (successes > 0) & (successes < trials))


@pytest.fixture
def posterior():
    known = BetaPosterior(6, decay_unsampled=1.0)
    known.observe(ROWS, np.full(6, 2.0), np.full(6, 4.0))  # the belief about each row is Beta(3, 3)
    return known


def test_a_batch_is_left_out_where_the_beta_binomial_gives_its_verdicts_too_little_chance(posterior):
    chance = np.exp(betaln(3 + 4, 3) - betaln(3, 3))  # all of 4 right, or all wrong: .119
    for successes in (0.0, 4.0):
        left_out = []
        for groups in range(1, 7):
            guard = OutageGuard(posterior)
            guard.judge(batch(successes, rows=ROWS[:groups]))
            left_out.append(guard.active)
        assert left_out == [chance**groups < 1e-4 for groups in range(1, 7)] == [False] * 4 + [True] * 2


def test_a_streak_adds_up_and_is_said_once_and_ends_with_other_verdicts(posterior):
    guard = OutageGuard(posterior)
    small = batch(0.0, rows=ROWS[:2])  # .014
    said = [guard.judge(small) for _ in range(4)]
    assert [each is not None for each in said] == [False, False, True, False]
    assert "all 8 answers of a generation batch are wrong" in said[2]
    unscored = batch(0.0, trials=0.0)
    assert guard.judge(unscored) is None
    assert guard.active
    resumed = OutageGuard(posterior)
    resumed.load_state_dict(json.loads(json.dumps(guard.state_dict(), sort_keys=True)))
    assert "outage of 2 generation batches is over" in resumed.judge(batch([1, 0, 0, 0, 0, 0]))
    assert not resumed.active
    resumed.judge(small)
    assert not resumed.active  # a new streak


def test_after_the_limit_the_verdicts_are_taken_for_the_truth(posterior):
    guard = OutageGuard(posterior)
    said = [guard.judge(batch(4.0)) for _ in range(LIMIT + 2)]
    assert [place for place, notice in enumerate(said) if notice] == [0, LIMIT]
    assert not guard.active
    assert guard.judge(batch(2.0)) is None


def test_rows_without_evidence_predict_nothing_and_equal_rewards_are_judged_by_their_own_formula(posterior):
    guard = OutageGuard(BetaPosterior(6))
    guard.judge(batch(0.0))
    assert not guard.active
    for groups in (4, 5):  # s ~ Beta(3, 3): a group of 4 is alike with a chance of E[1 - 2s + s^2 / 2] = .143
        spreads = OutageGuard(posterior)
        spreads.judge(batch(4.0, rows=ROWS[:groups]), spreads=True)  # rewards that all differ are no outage
        assert not spreads.active
        spreads.judge(batch(0.0, rows=ROWS[:groups]), spreads=True)
        assert spreads.active == (groups == 5)
    sure = BetaPosterior(6)
    sure.observe(ROWS, np.full(6, 100.0), np.full(6, 100.0))
    guard = OutageGuard(sure)
    guard.judge(batch(0.0), spreads=True)
    assert guard.active
    json.dumps(guard.state_dict(), allow_nan=False)  # the logarithm of a chance of 0 is no JSON value


def test_healthy_runs_of_learning_policies_raise_no_alarm():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        logits, sampler = rng.normal(-1.0, 2.0, 200), ThompsonSampler(200, seed=seed)
        guard = OutageGuard(sampler.posterior)
        for _ in range(150):
            rows = sampler.draw(8).sample_index
            outcomes = batch(rng.binomial(8, 1 / (1 + np.exp(-logits[rows]))), trials=8.0, rows=rows)
            guard.judge(outcomes)
            assert not guard.active
            sampler.observe(rows, outcomes.successes, outcomes.trials)
            logits += 0.02


RIGHT, WRONG, MIXED, UNSCORED = [1, 1, 1], [0, 0, 0], [1, 0, 0], [NAN, NAN, NAN]


def outcomes(*groups):
    return group_outcomes(np.array(groups, dtype=np.float64).ravel(), np.arange(len(groups)), threshold=0.5)


def notices_of(*batches, **more):
    watch = GradientWatch()
    return [watch.observe(batch, **more) for batch in batches]


def test_it_is_said_after_ten_batches_and_again_after_ten_times_as_many_until_there_is_a_gradient():
    batches = [*[outcomes(RIGHT, WRONG)] * 120, outcomes(RIGHT, MIXED), *[outcomes(UNSCORED, WRONG)] * 15]
    said = {number: notice for number, notice in enumerate(notices_of(*batches), start=1) if notice}
    assert [*said] == [10, 100, 131]
    assert "for 100 generation batches" in said[100]


def test_the_reason_is_in_the_notice():
    for *groups, spreads, reason in (
        (RIGHT, UNSCORED, False, "100% of the answers are right"),
        ([1, 1, NAN], [NAN, 1, 1], False, "100% of the answers are right"),
        (UNSCORED, WRONG, False, " 0% of the answers are right"),
        (RIGHT, WRONG, False, "50% of the answers are right"),
        (WRONG, WRONG, True, "for 10 generation batches. Check"),
        (UNSCORED, UNSCORED, False, "none has a score"),
    ):
        assert reason in notices_of(*[outcomes(*groups)] * 10, spreads=spreads)[-1]


def test_rewards_that_differ_on_one_side_of_the_threshold_name_the_threshold_and_no_missing_gradient():
    for group, verdict in [([0.1, 0.2, 0.3], " 0% of the answers"), ([0.7, 0.8, 0.9], "100% of the answers")]:
        notices = notices_of(*[outcomes(group)] * 10)
        assert notices[:-1] == [None] * 9
        assert all(part in notices[-1] for part in (verdict, "vade_success_threshold", "10 generation batches"))
        assert notices_of(*[outcomes(group)] * 9, outcomes(MIXED), outcomes(group))[-1] is None
        assert notices_of(*[outcomes(group)] * 10, spreads=True)[-1] is None
