"""What goes beyond the paper's rule in a draw: cooldown, uniform share, rows left out; alone and through a resume."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.errors import ConfigurationError, ObservationError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.snapshot import load_snapshot, save_snapshot

few = settings(deadline=None, derandomize=True, max_examples=50)
ROBUST = {"gain": "symmetric", "signal_aware_decay": True, "cooldown": 3}


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
    resting.load_state_dict(sampler.state_dict() | {"settings": resting.state_dict()["settings"]})
    assert resting.draw(1).sample_index[0] != 0


def test_where_too_few_rows_have_rested_those_that_rested_longest_come_first():
    sampler = ThompsonSampler(6, seed=1, cooldown=10)
    for rows in ([0, 1], [2, 3], [4]):
        half_right(sampler, np.array(rows))
    assert sampler.draw(1).sample_index.tolist() == [5]
    assert set(sampler.draw(3).sample_index.tolist()) == {5, 0, 1}
    assert set(sampler.draw(5).sample_index.tolist()) == {5, 0, 1, 2, 3}
    assert sampler.draw(6).sample_index[-1] == 4


def test_a_group_without_a_score_does_not_rest():
    sampler = ThompsonSampler(4, greedy=True, cooldown=3)
    assert sampler.draw(1).sample_index.tolist() == [0]
    sampler.observe([0], [0], [0])
    assert sampler.draw(1).sample_index.tolist() == [0]


def test_the_cooldown_is_found_again_after_a_resume(tmp_path):
    sampler = ThompsonSampler(40, seed=5, **ROBUST)
    for _ in range(4):
        half_right(sampler, sampler.draw(6).sample_index)
    save_snapshot(tmp_path, sampler)
    again = ThompsonSampler(40, seed=5, **ROBUST)
    again.load_state_dict(load_snapshot(tmp_path).sampler_state)
    for _ in range(6):
        rows = sampler.draw(6).sample_index
        np.testing.assert_array_equal(again.draw(6).sample_index, rows)
        half_right(sampler, rows)
        half_right(again, rows)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_uniform_share_is_drawn_from_all_other_rows_alike(share):
    """Half of 40 rows are hopeless by all that is known; blind choice takes them as often as the others left."""
    counts = np.zeros(40)
    num_blind = round(8 * share)
    for seed in range(300):
        sampler = ThompsonSampler(40, seed=seed, uniform_share=share)
        sampler.posterior.observe(np.arange(20), np.zeros(20), np.full(20, 1000))
        rows = sampler.draw(8).sample_index
        assert len(set(rows.tolist())) == 8
        assert (rows[: 8 - num_blind] >= 20).all()
        counts[rows[8 - num_blind :]] += 1
    left = 40 - (8 - num_blind)
    expected = 300 * num_blind * 20 / left
    assert counts[:20].sum() == pytest.approx(expected, abs=5 * np.sqrt(expected))


def test_no_uniform_share_changes_no_draw():
    plain, none = ThompsonSampler(30, seed=2), ThompsonSampler(30, seed=2, uniform_share=0.0)
    np.testing.assert_array_equal(plain.draw(7).sample_index, none.draw(7).sample_index)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half", True])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ConfigurationError, match="uniform_share"):
        ThompsonSampler(5, uniform_share=share)


@pytest.mark.parametrize("cooldown", [-1, 0.5, "2", True])
def test_a_cooldown_that_is_no_number_of_steps_is_refused(cooldown):
    with pytest.raises(ConfigurationError, match="cooldown"):
        ThompsonSampler(5, cooldown=cooldown)


@pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])
@few
@given(data=st.data())
def test_rows_left_out_are_not_chosen_and_too_few_rows_are_refused(kind, data):
    sampler = kind(12, seed=3)
    for _ in range(6):
        excluded = data.draw(st.sets(st.integers(0, 11), max_size=11))
        k = data.draw(st.integers(1, 12))
        if k > 12 - len(excluded):
            with pytest.raises(ConfigurationError, match=f"{12 - len(excluded)} to choose from"):
                sampler.draw(k, exclude=sorted(excluded))
        else:
            rows = sampler.draw(k, exclude=sorted(excluded)).sample_index.tolist()
            assert len(set(rows)) == k
            assert not excluded & set(rows)


def test_uniform_passes_over_rows_left_out_and_does_not_come_back_to_them_in_the_epoch():
    sampler, stock = UniformSampler(10, seed=4), UniformSampler(10, seed=4)
    order = stock.draw(10).sample_index.tolist()
    assert sampler.draw(3, exclude=order[1:3]).sample_index.tolist() == [order[0], order[3], order[4]]
    assert sampler.draw(2).sample_index.tolist() == order[5:7]


@pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])
def test_a_row_left_out_that_does_not_exist_is_refused(kind):
    with pytest.raises(ObservationError, match="rows must be in"):
        kind(5).draw(1, exclude=[5])
