"""What goes beyond the paper's rule in a draw: cooldown, strata, rows left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.priors import even_draw_ratio

few = settings(deadline=None, derandomize=True, max_examples=50)
RESTING = {"gain": "symmetric", "signal_aware_decay": True, "cooldown": 3}


def half_right(sampler, rows):
    sampler.observe(rows, np.full(len(rows), 4), np.full(len(rows), 8))


@few
@given(seed=st.integers(0, 999), cooldown=st.integers(0, 4), k=st.integers(1, 5))
def test_a_row_of_the_last_c_steps_is_not_chosen(seed, cooldown, k):
    sampler, chosen = ThompsonSampler(25, seed=seed, cooldown=cooldown), []
    for _ in range(12):
        rows = sampler.draw(k).sample_index
        recent = {row for batch in chosen[len(chosen) - cooldown :] for row in batch} if cooldown else set()
        assert not recent & set(rows.tolist())
        chosen.append(rows.tolist())
        half_right(sampler, rows)


def test_without_a_cooldown_the_best_row_is_chosen_again_at_once():
    sampler = ThompsonSampler(50, greedy=True)
    sampler.observe(np.arange(50), np.r_[3, np.zeros(49)], np.full(50, 8))
    for _ in range(3):
        assert sampler.draw(1).sample_index[0] == 0
        sampler.observe([0], [3], [8])
    resting = ThompsonSampler(50, greedy=True, cooldown=2)
    resting.load_state_dict(sampler.state_dict())
    assert resting.draw(1).sample_index[0] != 0


def test_where_too_few_rows_have_rested_those_that_rested_longest_come_first():
    sampler = ThompsonSampler(6, seed=1, cooldown=10)
    for rows in ([0, 1], [2, 3], [4]):
        half_right(sampler, np.array(rows))
    assert sampler.draw(1).sample_index.tolist() == [5]
    assert set(sampler.draw(3).sample_index.tolist()) == {5, 0, 1}
    assert set(sampler.draw(5).sample_index.tolist()) == {5, 0, 1, 2, 3}
    assert sampler.draw(6).sample_index[-1] == 4


def test_a_group_without_a_score_rests_since_it_was_drawn():
    sampler = ThompsonSampler(4, greedy=True, cooldown=3)
    assert sampler.draw(1).sample_index.tolist() == [0]
    sampler.observe([0], [0], [0])
    assert sampler.draw(1).sample_index.tolist() == [1]


@pytest.mark.parametrize("cooldown", [-1, 0.5, "2", True])
def test_a_cooldown_that_is_no_number_of_steps_is_refused(cooldown):
    with refused(ConfigurationError, names=["cooldown", cooldown]):
        ThompsonSampler(5, cooldown=cooldown)


@pytest.mark.parametrize(("successes", "teaches"), [(4, True), (0, False)])
def test_a_row_rests_for_the_share_of_an_epoch_that_even_draws_would_teach(successes, teaches):
    """Of 41 rows 40 teach, or none does. An epoch has 20 steps."""
    sampler, rows = ThompsonSampler(41, cooldown=4, even_rest=20, signal_aware_decay=True), np.arange(40)
    for _ in range(3):
        sampler.observe(rows, np.full(40, successes), np.full(40, 8))
    share = even_draw_ratio(sampler.posterior, 8)
    assert share > 0.8 if teaches else share < 0.2
    rest = round(20 * share) if teaches else 4
    assert sampler._steps_to_rest()[[0, 40]].tolist() == [rest, 0]


def test_the_share_is_that_of_spreads_where_outcomes_are_spreads():
    rests = []
    for told in (ThompsonSampler.use_spreads, lambda sampler: None):
        sampler = ThompsonSampler(40, even_rest=100)
        told(sampler)
        sampler.observe(np.arange(40), np.full(40, 2), np.full(40, 8))
        rests.append(sampler._steps_to_rest()[0])
    assert rests[0] < rests[1]


@pytest.mark.parametrize("settings", [{"even_rest": -1}, {"even_rest": 0.5}, {"even_rest": 3, "num_generations": 1}])
def test_an_epoch_or_a_group_that_is_no_number_is_refused(settings):
    with refused(ConfigurationError, names=[*settings][-1:]):
        ThompsonSampler(5, **settings)


def test_uniform_passes_over_rows_left_out_and_does_not_come_back_to_them_in_the_epoch():
    sampler, stock = UniformSampler(10, seed=4), UniformSampler(10, seed=4)
    order = stock.draw(10).sample_index.tolist()
    assert sampler.draw(3, exclude=order[1:3]).sample_index.tolist() == [order[0], order[3], order[4]]
    assert sampler.draw(2).sample_index.tolist() == order[5:7]


# ----------------------------------------------------------------------------------------------------------- strata

SIZES = {"rare": 2, "small": 8, "large": 30}
LABELS = [label for label, size in SIZES.items() for _ in range(size)]


def bytes_of(draw):
    return [
        array.tobytes()
        for array in (draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean)
    ]


def taken(rows):
    """How many of the rows are of each stratum."""
    return {label: sum(LABELS[row] == label for row in rows.tolist()) for label in SIZES}


def hopeless_but_for_the_large(**settings):
    """Of two strata all that is known is that they are never solved: by the gain alone nobody would choose them."""
    sampler = ThompsonSampler(40, stratify=LABELS, **settings)
    sampler.posterior.observe(np.arange(10), np.zeros(10), np.full(10, 1000))
    return sampler


@pytest.mark.parametrize("settings", [{}, {"greedy": True}, {"gain": "symmetric"}], ids=str)
def test_each_stratum_has_its_share_whatever_its_rows_are_worth(settings):
    sampler, total = hopeless_but_for_the_large(**settings), dict.fromkeys(SIZES, 0)
    for _ in range(100):
        counts = taken(sampler.draw(8).sample_index)
        assert counts["rare"] in (0, 1)  # 0.4 of a draw
        assert counts["small"] in (1, 2)  # 1.6
        assert counts["large"] == 6
        total = {label: total[label] + counts[label] for label in SIZES}
    assert abs(total["rare"] - 40) < 3
    assert abs(total["small"] - 160) < 3
    plain = ThompsonSampler(40, **settings)
    plain.load_state_dict(sampler.state_dict())
    assert taken(plain.draw(8).sample_index)["large"] == 8


@pytest.mark.parametrize("settings", [{}, RESTING, {"greedy": True}], ids=str)
def test_a_single_stratum_changes_no_draw(settings):
    plain, one = (ThompsonSampler(30, seed=2, stratify=labels, **settings) for labels in (None, ["all"] * 30))
    for excluded in ([], [1, 5], [], list(range(20))):
        draw = plain.draw(7, exclude=excluded)
        assert bytes_of(draw) == bytes_of(one.draw(7, exclude=excluded))
        for sampler in (plain, one):
            half_right(sampler, draw.sample_index)


@few
@given(data=st.data(), cooldown=st.integers(0, 6))
def test_k_distinct_rows_that_may_be_chosen_come_back_in_any_case(data, cooldown):
    sampler = ThompsonSampler(40, seed=1, stratify=LABELS, cooldown=cooldown)
    for _ in range(6):
        excluded = data.draw(st.sets(st.integers(0, 39), max_size=39))
        k = data.draw(st.integers(1, 40 - len(excluded)))
        rows = sampler.draw(k, exclude=sorted(excluded)).sample_index
        assert len(set(rows.tolist())) == k == rows.size
        assert not excluded & set(rows.tolist())
        half_right(sampler, rows)


def test_the_cooldown_goes_before_the_share():
    """The rows of a stratum that all rest are not chosen again at once: other strata take its places."""
    sampler = ThompsonSampler(40, stratify=LABELS, cooldown=3)
    half_right(sampler, np.arange(10))
    for _ in range(5):
        assert taken(sampler.draw(8).sample_index) == {"rare": 0, "small": 0, "large": 8}
    assert taken(sampler.draw(32).sample_index)["large"] == 30  # no other row is left


@pytest.mark.parametrize("cooldown", [1, 2])  # 0.2 and 0.4 of an epoch
def test_under_a_cooldown_of_a_part_of_an_epoch_each_stratum_has_its_share(cooldown):
    sampler, total = hopeless_but_for_the_large(cooldown=cooldown), np.zeros(3)
    for _ in range(200):
        rows = sampler.draw(8).sample_index
        total += list(taken(rows).values())
        half_right(sampler, rows)
    assert np.abs(total - 200 * 8 * np.array(list(SIZES.values())) / 40).max() < 6  # of 1600


@pytest.mark.parametrize("labels", [["a"] * 39, [None] * 40, [0.5] * 40, "a", np.zeros((40, 1), dtype=int)], ids=str)
def test_strata_that_are_no_label_for_each_row_are_refused(labels):
    with refused(ConfigurationError, names=["stratify", 40]):
        ThompsonSampler(40, stratify=labels)
