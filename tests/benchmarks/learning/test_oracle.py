"""The oracle: the best batch there is, and a state that can be gone on from."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.benchmarks.learning.oracle import OracleSampler
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, ObservationError, SnapshotCorruptError
from trl_vade.samplers.snapshot import state_digest


def oracle(num_samples, **kwargs):
    # Few values, so that there are ties to break.
    return OracleSampler(num_samples, num_generations=8, pass_rate=np.arange(num_samples) % 4 / 4, **kwargs)


def test_after_loading_the_next_draws_are_the_same():
    first, second = oracle(23, seed=9), OracleSampler(23, num_generations=8, seed=9)
    for _ in range(5):
        first.observe(first.draw(4).sample_index, [1, 0, 8, 3], [8] * 4)
    second.load_state_dict(first.state_dict())
    assert state_digest(second) == state_digest(first)
    for _ in range(3):
        assert first.draw(4).sample_index.tolist() == second.draw(4).sample_index.tolist()


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: OracleSampler(5, num_generations=1), ["num_generations", 1]),
        (lambda: OracleSampler(5, num_generations=8, gain="entropy"), ["gain", "entropy"]),
        (lambda: OracleSampler(5, num_generations=8).draw(1), ["set_pass_rates"]),
    ],
)
def test_each_setting_is_checked(make, names):
    with refused(ConfigurationError, names=names):
        make()


def test_the_oracle_refuses_a_saved_state_with_what_are_no_pass_rates():
    sampler = oracle(5)
    before = state_digest(sampler)
    for wrong in ([0.5] * 4, [0.5, 0.5, 0.5, 0.5, 1.5], 0.5, [None] * 5, ["0.5"] * 5):
        with pytest.raises(SnapshotCorruptError):
            sampler.load_state_dict(sampler.state_dict() | {"memory": {"pass_rate": wrong}})
        assert state_digest(sampler) == before


def test_the_oracle_takes_the_largest_gain():
    pass_rate = [0.0, 0.25, 0.5, 0.9, 1.0]
    sampler = OracleSampler(5, num_generations=4, pass_rate=pass_rate)
    draw = sampler.draw(3)
    assert draw.sample_index.tolist() == [2, 1, 3]
    assert draw.sampled_pass_rate.tolist() == [0.5, 0.25, 0.9]
    # 1 - 2/16; 1 - 1/256 - 81/256; 1 - 0.6561 - 0.0001
    np.testing.assert_allclose(draw.information_gain, [0.875, 0.6796875, 0.3438], rtol=1e-12)
    symmetric = OracleSampler(5, num_generations=4, pass_rate=pass_rate, gain="symmetric").draw(3)
    np.testing.assert_allclose(symmetric.information_gain, [0.25, 0.1875, 0.09], rtol=1e-12)
    asymmetric = OracleSampler(5, num_generations=4, pass_rate=pass_rate, gain="asymmetric").draw(3)
    assert asymmetric.sample_index.tolist() == [1, 2, 3]  # 9/64, 8/64, 0.009


def test_the_oracle_follows_the_pass_rates_and_not_the_outcomes():
    sampler = OracleSampler(3, num_generations=8, pass_rate=[0.5, 0.0, 1.0])
    assert sampler.draw(1).sample_index.tolist() == [0]
    sampler.observe([0, 1, 2], [0.0, 5e5, 5e5], [1e6] * 3)
    assert sampler.draw(1).sample_index.tolist() == [0]
    told = np.array([1.0, 0.5, 0.0])
    sampler.set_pass_rates(told)
    told[:] = 0.0
    assert sampler.draw(1).sample_index.tolist() == [1]


def test_the_oracle_breaks_ties_by_its_own_stream():
    # 0.3 and 0.7 have the same ratio in all but the last bit
    sampler = OracleSampler(20, num_generations=8, pass_rate=[0.3, 0.7] * 10)
    counts = np.bincount(np.concatenate([sampler.draw(5).sample_index for _ in range(2000)]), minlength=20)
    assert np.abs(counts - 500).max() < 4.5 * math.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize("wrong", [[0.5] * 4, [0.5] * 4 + [1.5], [0.5] * 4 + [math.nan], [-0.1] * 5, 0.5, ["a"] * 5])
def test_the_oracle_refuses_what_are_no_pass_rates(wrong):
    sampler = oracle(5)
    before = state_digest(sampler)
    with pytest.raises(ObservationError, match="pass_rate"):
        sampler.set_pass_rates(wrong)
    assert state_digest(sampler) == before


@settings(deadline=None, derandomize=True, max_examples=60)
@given(pass_rate=st.lists(st.floats(0, 1), min_size=1, max_size=30), generations=st.integers(2, 16), data=st.data())
def test_no_other_batch_has_a_larger_ratio(pass_rate, generations, data):
    k = data.draw(st.integers(1, len(pass_rate)))
    draw = OracleSampler(len(pass_rate), num_generations=generations, pass_rate=pass_rate).draw(k)
    best = sorted((1 - p**generations - (1 - p) ** generations for p in pass_rate), reverse=True)[:k]
    assert draw.information_gain.sum() == pytest.approx(sum(best), abs=1e-9)


def test_the_oracle_takes_the_chance_of_a_gradient_where_it_is_told():
    sampler = OracleSampler(3, num_generations=4)
    sampler.set_pass_rates([0.5, 0.0, 0.1], mixed=[0.2, 0.9, 0.1])
    assert sampler.draw(2).sample_index.tolist() == [1, 0]


def test_a_scored_row_rests_for_the_cooldown():
    sampler = OracleSampler(4, num_generations=4, pass_rate=[0.5, 0.4, 0.3, 0.2], cooldown=2)
    chosen = []
    for _ in range(4):
        rows = sampler.draw(1).sample_index
        sampler.observe(rows, [2], [4])
        chosen.append(int(rows[0]))
    assert chosen == [0, 1, 2, 0]
