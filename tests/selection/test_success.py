"""The rewards of a generation batch say how a row goes: by successes, by fractions, or by their spread."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, ObservationError
from trl_vade.selection.success import AUTO, LEARNING, SPREAD, RewardSignal, success_name

NAN, INF = float("nan"), float("inf")


class Told(list):
    """The messages of a signal, and the signal itself."""

    def __init__(self, name="reward", names=("reward",), **settings):
        super().__init__()
        self.signal = RewardSignal(name, names, say=self.append, **settings)

    def see(self, *groups, weights=(1.0,)):
        """The outcomes of groups of completions, each a reward or the rewards of several functions."""
        rewards = np.array(groups, dtype=np.float64)
        rewards = rewards.reshape(len(groups) * len(groups[0]), -1)
        return self.signal.outcomes(rewards, np.arange(len(groups)), weights=np.array(weights))


def test_the_name_that_alone_says_success_is_found_and_one_that_no_function_has_or_two_share_is_refused():
    for *names, declared, found in (
        ("length", None, "length"),
        ("accuracy_reward", "think_format_reward", None, "accuracy_reward"),
        ("format_reward", "ExactMatch", None, "ExactMatch"),
        ("is_solved", "answer_format_reward", None, "is_solved"),
        ("MathVerifier", "length_penalty", "style", None, "MathVerifier"),
        ("accuracy_reward", "correct_steps", None, None),
        ("format", "length", None, None),
        ("format", "accuracy", "length", "length", "length"),
    ):
        assert success_name(names, declared) == found
    for names in (["format"], ["format", "accuracy"]):
        with refused(ConfigurationError, names=["vade_success_reward='acuracy'", *names]):
            success_name(names, "acuracy")
    with refused(ConfigurationError, offers=["rename one"]):
        success_name(["accuracy", "format", "accuracy"], "accuracy")


def test_of_two_values_the_higher_one_is_success():
    for wrong, right in [(0, 1), (-1, 1), (0, 2), (0.1, 0.9), (-5, -2)]:
        told = Told()
        outcomes = told.see([right, wrong, wrong, wrong], [right, right, wrong, NAN])
        assert (outcomes.successes.tolist(), outcomes.trials.tolist()) == ([1, 2], [4, 3])
        assert told.signal.threshold == (wrong + right) / 2
        for _ in range(LEARNING):
            told.see([right, wrong])
        assert told.see([wrong + 0.6 * (right - wrong), wrong + 0.4 * (right - wrong)]).successes.tolist() == [1]
        assert (told.signal.is_spread, [*told]) == (False, [])


def test_a_first_batch_of_one_value_leaves_the_threshold_open():
    for value in (0.0, 1.0):
        told = Told()
        assert told.see([value] * 4).successes.tolist() == [4 * value]
        assert told.see([1 - value] * 4, [value] * 4).successes.tolist() == [4 - 4 * value, 4 * value]
        assert told.signal.threshold == 0.5
        told.see([0.3, 0.2, 0.1, 0.4])
        assert told.signal.is_spread


def test_rewards_of_more_than_two_values_are_known_by_their_spread_and_that_is_said_once():
    told = Told()
    outcomes = told.see([0.05, 0.05, 0.2, 0.1], [0.1, 0.1, 0.1, 0.1])
    assert outcomes.successes.tolist() == pytest.approx([4 * 5 / 6, 0])
    assert told.signal.facts == {"success_reward": "reward", "success_threshold": SPREAD}
    told.see([0.05, 0.05, 0.2, 0.1])
    assert len(told) == 1
    for part in ("'reward'", "0.05 to 0.2", "vade_success_threshold"):
        assert part in told[0]


def test_without_a_success_the_spread_is_that_of_the_weighted_total():
    told = Told(None, ["format", "length"])
    rewards = [[(0, 2), (1, 1), (2, 0)], [(0, 0), (1, 0), (NAN, NAN)]]
    assert told.see(*rewards, weights=(1, 1)).successes.tolist() == [0, 2]
    assert told.see(*rewards, weights=(1, 0)).successes.tolist() == [3, 2]
    assert told.signal.facts["success_reward"] is None


def test_the_spread_of_a_declared_reward_looks_at_no_other_and_rewards_that_all_differ_are_said():
    told = Told("accuracy", ["format", "accuracy"], threshold=SPREAD)
    outcomes = told.see([(0, 0.5), (1, 0.5)], [(0, 0.1), (0, 0.7)], weights=(1, 1))
    assert outcomes.successes.tolist() == [0, 2]
    assert outcomes.has_gradient.tolist() == [True, True]
    assert not told
    told.see([(0, 0.1), (0, 0.2), (0, 0.3)], weights=(1, 1))
    assert "vade_success_threshold" in told[0]


def test_a_row_that_the_declared_reward_does_not_score_is_known_by_the_spread_of_its_total():
    # Beside a pass rate, such spreads are more than right and wrong answers have: a rate of 1/2.
    of_rates, of_spreads = [1, 2, 0, 2], [4 * 3 / 6, 4 * 5 / 6, 0, 4 * 4 / 6]
    maths = [(1, NAN, 1), (0, NAN, 1), (0, NAN, 1), (0, NAN, 1)]
    wide, flat, narrow = ([(NAN, iou, 1) for iou in each] for each in ((0, 0.3, 0.6, 0.6), (0,) * 4, (0, 0, 0.3, 0.3)))
    for threshold, successes in ((0.5, of_rates), (SPREAD, of_spreads)):
        told = Told("accuracy", ["accuracy", "iou", "format"], threshold=threshold)
        outcomes = told.see(maths, wide, flat, narrow, weights=(1, 1, 1))
        assert outcomes.successes.tolist() == pytest.approx(successes)
        assert outcomes.trials.tolist() == [4] * 4
        assert outcomes.has_gradient.tolist() == [True, True, False, True]


def test_a_group_has_a_gradient_where_its_total_rewards_differ_whatever_means_success():
    told = Told("accuracy", ["format", "accuracy"], threshold=0.5)
    outcomes = told.see([(0, 0), (1, 0)], [(1, 0), (0, 1)], [(1, 1), (1, 1)], weights=(1, 1))
    assert outcomes.has_gradient.tolist() == [True, False, False]
    assert outcomes.is_mixed.tolist() == [False, True, False]


def test_bounds_of_fractions_outside_0_and_1_are_learned_from_the_first_batches_and_then_kept():
    told = Told(threshold=None)
    assert told.see([0, 10, 5]).successes.tolist() == [1.5]
    assert told.see([20, 10, 0]).successes.tolist() == [1.5]
    for _ in range(LEARNING):
        told.see([0, 10, 5])
    assert told.see([40, 10, -20]).successes.tolist() == [1.5]
    assert told.signal.bounds == (0, 20)
    [said] = told
    assert "0 to 1" in said
    inside = Told(threshold=None)
    assert (inside.see([0.25, 0.5, 0.75]).successes.tolist(), inside.signal.bounds, [*inside]) == ([1.5], (0, 1), [])
    for reward, fraction in [(-3.0, 0.0), (7.0, 1.0), (0.5, 0.5)]:  # its sign says at which end one reward lies
        assert Told(threshold=None).see([reward, reward]).successes.tolist() == [2 * fraction]


@given(
    st.sampled_from([AUTO, None, 0.5]),
    st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, -3.0]), min_size=4, max_size=4), min_size=2, max_size=6),
    st.integers(1, 5),
)
@example(None, [[0.0, 1.0, 0.25, -3.0]] * LEARNING + [[9.0, 1.0, 0.0, -9.0]], LEARNING)  # bounds that are learned
@example(AUTO, [[0.0, 1.0, 1.0, 0.0]] * (LEARNING + 1) + [[0.0, 0.25, 0.75, 1.0]], LEARNING)
def test_a_resumed_run_sees_its_rewards_as_the_run_that_was_never_stopped(threshold, groups, stop):
    whole, stopped, resumed = (Told(threshold=threshold) for _ in range(3))
    for group in groups[:stop]:
        stopped.see(group)
        whole.see(group)
    resumed.signal.adopt(stopped.signal.facts, stopped.signal.state_dict())
    for group in groups[stop:]:
        left, right = whole.see(group), resumed.see(group)
        assert left.successes.tolist() == right.successes.tolist()
        assert left.is_mixed.tolist() == right.is_mixed.tolist()
    assert whole.signal.facts == resumed.signal.facts


def test_a_threshold_that_was_set_is_not_taken_from_a_saved_run():
    told = Told(threshold=0.7)
    told.signal.adopt({"success_threshold": SPREAD}, {"open": False})
    assert told.signal.threshold == 0.7


def test_infinite_rewards_are_counted_by_the_function_that_gave_them():
    rewards = [[(1, INF, 0), (NAN, -INF, 0), (0.5, INF, INF), (1, 2, 0)]]
    for name in ("accuracy", None):
        with refused(ObservationError, names=["'length': 3", "'format': 1"], offers=["None", "last checkpoint"]):
            Told(name, ["accuracy", "length", "format"]).see(*rewards, weights=(1, 1, 1))
