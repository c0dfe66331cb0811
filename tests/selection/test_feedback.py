"""`Feedback` by itself, as a process without a trainer holds it: outcomes in, figures, log and totals out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.information import mixed_group_probability, spread_group_probability
from trl_vade.samplers.snapshot import state_digest
from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import GroupOutcomes, group_outcomes
from trl_vade.selection.success import RewardSignal


@pytest.fixture
def make(tmp_path):
    def feedback(sampler=None, **more):
        return Feedback(sampler or ThompsonSampler(9, seed=5), num_generations=4, log=SelectionLog(tmp_path), **more)

    return feedback


def score(feedback, rewards, **more):
    """Draw as many rows as there are groups of four rewards, and observe these."""
    rewards = np.asarray(rewards, dtype=np.float64)
    rows = feedback.sampler.draw(len(rewards)).sample_index
    in_flight = feedback.in_flight(rows, **more)
    return feedback.observe(in_flight, group_outcomes(rewards.ravel(), rows, threshold=0.5), 0)


MIXED, RIGHT = [1, 0, 0, 0], [1, 1, 1, 1]


def test_outcomes_reach_the_sampler_the_log_and_the_figures_round_by_round(make):
    feedback = make()
    early = feedback.in_flight(feedback.sampler.draw(1).sample_index)
    metrics = score(feedback, [MIXED, RIGHT])
    assert (metrics["effective_gradient_ratio"], metrics["rollouts"], metrics["staleness"]) == (0.5, 8.0, 0.0)
    assert (feedback.sampler.posterior.step, feedback.rollouts) == (1, 8)
    (line,) = feedback.log.read()
    assert sorted(line["successes"]) == [1, 4]
    outcomes = group_outcomes(np.array(MIXED, dtype=np.float64), early.sample_index, threshold=0.5)
    assert feedback.observe(early, outcomes, 0)["staleness"] == 1.0  # it was drawn before the last one was scored
    score(feedback, [RIGHT, RIGHT])
    assert score(feedback, [MIXED], refill=1)["effective_gradient_ratio"] == pytest.approx(1 / 3)
    assert score(feedback, [MIXED])["effective_gradient_ratio"] == 1.0


def test_a_group_that_trained_by_another_reward_forgets_as_a_group_that_trained(make):
    """All answers are wrong, and their formats differ: the group has a gradient."""
    sampler = ThompsonSampler(4, signal_aware_decay=True, decay_sampled=0.2, decay_unsampled=1.0)
    feedback = make(sampler)
    for _ in range(2):
        rows = np.array([0, 1])
        wrong = replace(group_outcomes(np.zeros(8), rows, threshold=0.5), has_gradient=np.array([True, False]))
        feedback.observe(feedback.in_flight(rows), wrong, 0)
    assert sampler.posterior.beta.tolist() == pytest.approx([0.2 * 4 + 4, 4 + 4, 0, 0])
    assert [line["mixed"] for line in feedback.log.read()] == [[True, False]] * 2


def test_a_warm_start_is_a_step_and_a_line_but_no_generation_batch(make):
    feedback, rows = make(), np.array([1, 4])
    none = GroupOutcomes(rows[:0], *np.zeros((2, 0)), rows[:0] > 0)
    feedback.warm_start(none, "nothing")
    assert (feedback.sampler.posterior.step, feedback.log.read()) == (0, [])
    feedback.warm_start(GroupOutcomes(rows, np.array([3.0, 0.0]), np.array([4.0, 4.0]), rows < 0), "user/repo@abc")
    (line,) = feedback.log.read()
    assert (line["warm_start"], line["step"], line["rollouts"]) == ("user/repo@abc", 1, 0)
    assert line["effective_gradient_ratio"] is line["predicted_effective_ratio"] is None
    assert feedback.sampler.metrics()["coverage"] == 2 / 9
    assert feedback.in_flight(rows).posterior_step == 1


@pytest.mark.parametrize(("clipped", "told"), [(0.4, False), (0.9, True)])
def test_answers_that_are_cut_are_named_beside_groups_without_a_gradient(make, caplog, clipped, told):
    feedback = make()
    for _ in range(10):
        score(feedback, [[0, 0, 0, 0]], clipped=clipped)
    assert "No group has had a gradient for 10 generation batches" in caplog.text
    assert ("90% of the answers were cut at max_completion_length" in caplog.text) == told


def test_a_process_that_does_not_write_learns_the_same_and_says_nothing(make, caplog):
    loud, quiet = make(), make(writes=False)
    for _ in range(10):
        score(quiet, [RIGHT])
    assert (quiet.log.read(), caplog.text) == ([], "")
    for _ in range(10):
        score(loud, [RIGHT])
    assert state_digest(loud.sampler) == state_digest(quiet.sampler)
    assert len(loud.log.read()) == 10
    assert "No group has had a gradient" in caplog.text


def test_an_even_draw_of_spreads_is_estimated_as_one_of_spreads(make):
    feedback = make(signal=RewardSignal(None, ["reward"]))
    metrics = score(feedback, [MIXED])
    spreads = spread_group_probability(*feedback.sampler.belief(), 4)
    assert metrics["even_draw_ratio"] == pytest.approx(spreads.mean())


def test_an_even_draw_is_corrected_where_the_policy_has_become_surer(make):
    chance, feedback = np.random.default_rng(0), make(UniformSampler(512, seed=0))
    logits = chance.normal(size=512)
    for step in range(32):
        rates = 1 / (1 + np.exp(-(1 + step) * logits))
        rows = feedback.sampler.draw(64).sample_index
        rewards = chance.random((64, 4)) < rates[rows, None]
        outcomes = group_outcomes(rewards.ravel().astype(float), rows, threshold=0.5)
        metrics = feedback.observe(feedback.in_flight(rows), outcomes, 0)
    truth = np.mean(1 - rates**4 - (1 - rates) ** 4)
    assert metrics["even_draw_ratio"] == pytest.approx(truth, abs=0.03)
    assert mixed_group_probability(*feedback.sampler.belief(), 4).mean() > truth + 0.08
    again = make(feedback.sampler)
    again.load_state_dict(json.loads(json.dumps(feedback.state_dict())))
    assert again.state_dict()["lately"] == feedback.state_dict()["lately"] != make().state_dict()["lately"]


def test_an_even_draw_of_many_rows_is_that_of_some(make, monkeypatch):
    rows, half = np.arange(100_000), np.arange(100_000) % 2
    found = []
    for most in (2**14, 2**17):
        monkeypatch.setattr("trl_vade.selection.feedback.MOST_ROWS", most)
        feedback = make(UniformSampler(100_000, seed=0))
        feedback.sampler.observe(rows, 8 * half, np.full(100_000, 16))
        found.append(score(feedback, [MIXED])["even_draw_ratio"])
    assert found[0] == pytest.approx(found[1], abs=0.01)
    assert found[0] != found[1]


def test_a_refill_with_a_gradient_ends_a_streak_of_batches_without_one(make, caplog):
    feedback = make()
    for rewards, refill in [*[(RIGHT, 0)] * 9, (MIXED, 1), *[(RIGHT, 0)] * 9]:
        score(feedback, [rewards], refill=refill)
    assert "No group has had a gradient" not in caplog.text


def test_the_totals_go_on_where_they_were_saved_and_a_lost_log_is_said(make, caplog):
    first = make()
    score(first, [MIXED, RIGHT])
    sampler, totals = first.sampler.state_dict(), first.state_dict()
    score(first, [MIXED])
    second = make()
    second.sampler.load_state_dict(sampler)
    second.load_state_dict(totals)
    second.resume_log(totals)
    assert (second.rollouts, second.outage, len(second.log.read())) == (8, False, 1)
    score(second, [MIXED])
    assert state_digest(second.sampler) == state_digest(first.sampler)
    assert caplog.text == ""
    second.log.path.unlink()
    second.resume_log(totals)
    assert "cannot be continued: it is missing" in caplog.text


def test_rows_without_a_score_rest_like_others_and_are_named_once(make, caplog):
    """5 % of 512 rows return None. Over five epochs they had 32 % of the draws when a row rested by its score."""

    def new():
        return ThompsonSampler(512, seed=1, cooldown=32, even_rest=64)

    feedback, chance, drawn = make(new()), np.random.default_rng(0), []
    for step in range(320):
        rows = feedback.sampler.draw(8).sample_index
        drawn += rows.tolist()
        rewards = (chance.random((8, 4)) < (rows % 5 / 4)[:, None]).astype(np.float64)
        rewards[rows % 20 == 0] = np.nan
        feedback.observe(feedback.in_flight(rows), group_outcomes(rewards.ravel(), rows, threshold=0.5), 0)
        if step == 160:  # a resume
            again, state = new(), feedback.sampler.state_dict()
            again.load_state_dict(state | {"unscored": json.loads(json.dumps(state["unscored"]))})
            assert state_digest(again) == state_digest(feedback.sampler)
            feedback.sampler = again
    assert np.mean(np.array(drawn) % 20 == 0) < 0.125
    assert caplog.text.count("that were drawn twice") == 1
