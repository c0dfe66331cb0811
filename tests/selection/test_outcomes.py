"""Rewards of a generation batch -> successes, trials and gradient of every group."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trl_vade import BetaPosterior
from trl_vade.selection.outcomes import group_outcomes, rows_with_gradient, spread_outcomes

NAN = float("nan")


def outcomes_of(*groups, threshold=0.5, **options):
    rewards = np.array(groups, dtype=np.float64).ravel()
    return group_outcomes(rewards, np.arange(len(groups)), threshold=threshold, **options)


def test_successes_and_trials_of_four_groups_worked_out_by_hand():
    rewards = np.array([1, 0, 0, 1] + [0] * 4 + [1] * 4 + [1, NAN, 0, NAN], dtype=np.float64)
    outcomes = group_outcomes(rewards, np.array([7, 0, 3, 5]), threshold=0.5)
    assert outcomes.sample_index.tolist() == [7, 0, 3, 5]
    assert outcomes.successes.tolist() == [2, 0, 4, 1]
    assert outcomes.trials.tolist() == [4, 4, 4, 2]
    assert outcomes.has_gradient.tolist() == [True, False, False, True]
    assert outcomes.pass_rate.tolist() == [0.5, 0.0, 1.0, 0.5]


def test_a_group_without_any_score_has_no_trials_and_no_gradient():
    for threshold in (0.5, None):
        outcomes = outcomes_of([NAN, NAN], [1, 0], threshold=threshold)
        assert (outcomes.trials.tolist(), outcomes.successes.tolist()) == ([0, 2], [0, 1])
        assert outcomes.has_gradient.tolist() == [False, True]
        assert np.isnan(outcomes.pass_rate[0])


def test_a_reward_that_equals_the_threshold_is_a_success_also_as_float32():
    """TRL keeps rewards as float32, and 0.7 is below 0.7 there: `0.7 >= 0.7` must not depend on it."""
    for threshold, successes in [(0.5, 2), (0.75, 1), (-1.0, 4), (2.0, 0), (0, 4)]:
        assert outcomes_of([0.0, 0.25, 0.5, 0.75], threshold=threshold).successes.tolist() == [successes]
    for reward in (0.1, 0.2, 0.3, 0.6, 0.7, 0.9):
        stored = torch.tensor([reward] * 4, dtype=torch.float32).double().numpy()
        assert group_outcomes(stored, np.array([0]), threshold=reward).successes.tolist() == [4]


def test_rewards_that_differ_are_a_gradient_on_whichever_side_of_the_threshold_they_lie():
    outcomes = outcomes_of([0.1, 0.2, 0.3], [0.6, 0.9, 1.0], [0.7, 0.7, 0.7], [0.4, 0.5, 0.5])
    assert outcomes.has_gradient.tolist() == [True, True, False, True]
    assert outcomes.is_mixed.tolist() == [False, False, False, True]


def test_fractions_of_a_success_lie_between_their_bounds_and_differ_by_more_than_rounding():
    outcomes = outcomes_of([0.25, 0.5, 1, NAN], [0.5] * 4, [1 / 3, np.float32(1 / 3), NAN, NAN], threshold=None)
    assert outcomes.successes.tolist() == pytest.approx([1.75, 2, 2 / 3])
    assert outcomes.trials.tolist() == [3, 4, 2]
    assert outcomes.has_gradient.tolist() == [True, False, False]
    outcomes = outcomes_of([-2.0, 0.0, 4.0], [2.0, 5.0, -9.0], threshold=None, bounds=(-2.0, 4.0))
    assert outcomes.successes.tolist() == pytest.approx([4 / 3, 5 / 3])


def test_the_spreads_of_five_groups_worked_out_by_hand():
    total = np.array([[1, 0, 0, 1], [2, 2, 2, 2], [1, 2, 3, 4], [1, 0, NAN, NAN], [1, NAN, NAN, NAN]], dtype=float)
    outcomes = spread_outcomes(total, np.arange(5))
    assert outcomes.trials.tolist() == [4, 4, 4, 2, 0]
    assert outcomes.successes.tolist() == pytest.approx([4 * 4 / 6, 0, 4, 2, 0])
    assert outcomes.has_gradient.tolist() == [True, False, True, True, False]


@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_the_spread_of_rewards_of_0_and_1_is_the_unbiased_2p_1_minus_p(rewards):
    size, p = len(rewards), np.mean(rewards)
    outcomes = spread_outcomes(np.array([rewards], dtype=float), np.array([3]))
    assert outcomes.pass_rate.tolist() == pytest.approx([2 * p * (1 - p) * size / (size - 1)])
    assert outcomes.sample_index.tolist() == [3]


SCORES = st.just(NAN) | st.floats(0.0, 1.0, width=32)


@given(st.data(), st.integers(1, 6), st.integers(1, 8), st.none() | st.floats(0.0, 1.0))
def test_whatever_comes_out_is_what_a_posterior_accepts(data, groups, generations, threshold):
    size = groups * generations
    rewards = np.array(data.draw(st.lists(SCORES, min_size=size, max_size=size)))
    outcomes, posterior = group_outcomes(rewards, np.arange(groups), threshold=threshold), BetaPosterior(groups)
    posterior.observe(outcomes.sample_index, outcomes.successes, outcomes.trials)
    assert (posterior.alpha + posterior.beta).sum() == pytest.approx(np.count_nonzero(~np.isnan(rewards)))


def test_a_completion_at_the_mean_of_its_group_has_no_gradient():
    rewards = np.array([[[1.0], [0.5], [0.5], [0.0]], [[1.0], [1.0], [1.0], [NAN]]])
    moves = [[True, False, False, True], [False] * 4]
    assert rows_with_gradient(rewards, np.ones(1)).tolist() == moves
