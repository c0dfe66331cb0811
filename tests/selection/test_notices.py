"""What a run says of its rows: each notice when it is due, only then, and with what to do."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.selection.notices import PATIENCE, GradientWatch, pool_notices
from trl_vade.selection.outcomes import group_outcomes

NAN = float("nan")
RIGHT, WRONG, MIXED, UNSCORED = [1, 1, 1], [0, 0, 0], [1, 0, 0], [NAN, NAN, NAN]


def outcomes(*groups, threshold=0.5):
    rewards = np.array(groups, dtype=np.float64).ravel()
    return group_outcomes(rewards, np.arange(len(groups)), threshold=threshold)


def notices_of(*batches):
    watch = GradientWatch()
    return [watch.observe(batch) for batch in batches]


# --------------------------------------------------------------------------------------------------- the data set


def test_a_data_set_with_rows_to_choose_from_needs_no_words():
    assert pool_notices(num_rows=128, num_groups=64, num_copies=0) == []


@given(st.integers(1, 500), st.integers(1, 500))
def test_a_batch_of_more_than_half_of_the_rows_is_close_to_uniform_choice(num_groups, num_left_out):
    notices = pool_notices(num_groups + num_left_out, num_groups, num_copies=0)
    if num_left_out >= num_groups:
        assert notices == []
    else:
        (notice,) = notices
        numbers = [int(number) for number in re.findall(r"\d+", notice)]
        assert numbers == [num_groups, num_groups + num_left_out, num_left_out]
        assert "close to uniform choice" in notice


@given(st.integers(1, 500))
def test_copies_are_counted_and_the_ways_out_are_named(num_copies):
    (notice,) = pool_notices(num_rows=1000, num_groups=8, num_copies=num_copies)
    assert notice.startswith(f"{num_copies} of the 1000 training rows equal an earlier")
    assert "Drop the copies" in notice
    assert "id column" in notice


def test_both_can_be_said_of_one_data_set():
    assert len(pool_notices(num_rows=10, num_groups=8, num_copies=3)) == 2


# --------------------------------------------------------------------------------------------- without a gradient


def test_it_is_said_after_ten_batches_and_again_after_ten_times_as_many():
    notices = notices_of(*[outcomes(RIGHT, WRONG)] * 1000)
    said = [number for number, notice in enumerate(notices, start=1) if notice]
    assert PATIENCE == 10
    assert said == [10, 100, 1000]
    for number in said:
        assert notices[number - 1].startswith(f"No group has had a gradient for {number} generation batches: ")


@given(st.lists(st.tuples(st.integers(0, 130), st.integers(1, 3)), max_size=4))
def test_a_gradient_in_any_group_starts_the_count_anew(stretches):
    batches, due = [], []
    for length, num_good in stretches:
        batches += [outcomes(RIGHT, UNSCORED)] * length + [outcomes(RIGHT, MIXED)] * num_good
        due += [step in (10, 100) for step in range(1, length + 1)] + [False] * num_good
    assert [notice is not None for notice in notices_of(*batches)] == due


@pytest.mark.parametrize(
    ("groups", "reason", "advice"),
    [
        ([RIGHT, RIGHT], "every answer is right", "add harder ones, or stop"),
        ([RIGHT, UNSCORED], "every answer is right", "reward function"),
        ([WRONG, WRONG], "every answer is wrong", "add easier ones"),
        ([UNSCORED, WRONG], "every answer is wrong", "format"),
        ([RIGHT, WRONG], "the answers of each group all get the same reward", "temperature"),
        ([UNSCORED, UNSCORED], "no completion got a score", "the reward function returns"),
    ],
)
def test_the_reason_and_what_to_do_are_in_the_notice(groups, reason, advice):
    notice = notices_of(*[outcomes(*groups)] * PATIENCE)[-1]
    assert f"{PATIENCE} generation batches: {reason}" in notice
    assert advice in notice


def test_fractions_without_a_spread_are_neither_all_right_nor_all_wrong():
    notice = notices_of(*[outcomes([0.5, 0.5], [0.5, 0.5], threshold=None)] * PATIENCE)[-1]
    assert "the answers of each group all get the same reward" in notice


def test_a_completion_without_a_score_is_no_wrong_answer():
    notice = notices_of(*[outcomes([1, 1, NAN], [NAN, 1, 1])] * PATIENCE)[-1]
    assert "every answer is right" in notice


def test_without_a_success_nothing_is_said_of_right_and_wrong_answers():
    watch = GradientWatch()
    watch.of_spreads = True
    notice = [watch.observe(outcomes(WRONG, WRONG)) for _ in range(PATIENCE)][-1]
    assert "the answers of each group all get the same reward" in notice


@pytest.mark.parametrize(("group", "verdict"), [([0.1, 0.2, 0.3], "wrong"), ([0.7, 0.8, 0.9], "right")])
def test_rewards_that_differ_on_one_side_of_the_threshold_name_the_threshold_and_no_missing_gradient(group, verdict):
    notices = notices_of(*[outcomes(group)] * PATIENCE)
    assert notices[:-1] == [None] * (PATIENCE - 1)
    for part in (verdict, "vade_success_threshold", f"{PATIENCE} generation batches"):
        assert part in notices[-1]
    assert notices_of(*[outcomes(group)] * (PATIENCE - 1), outcomes(MIXED), outcomes(group))[-1] is None
