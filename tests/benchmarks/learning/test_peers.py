"""What each peer and the oracle do, worked by hand."""

import math

import numpy as np
import pytest

from eval.benchmarks.learning.oracle import OracleSampler
from eval.benchmarks.learning.peers import BOTSSampler, DifficultyPoolSampler, GRESOSampler, MoPPSSampler, SECSampler
from eval.benchmarks.learning.peers.base import mean_absolute_advantage
from trl_vade.errors import SnapshotMismatchError
from trl_vade.samplers.snapshot import state_digest


def sec(num_samples, **kwargs):
    return SECSampler(num_samples, task=[f"kind {i % 3}" for i in range(num_samples)], **kwargs)


@pytest.mark.parametrize("make", [MoPPSSampler, BOTSSampler, sec, DifficultyPoolSampler, GRESOSampler])
def test_a_peer_goes_on_where_its_state_was_kept(make):
    first, again, chance = make(40, seed=3), make(40, seed=3), np.random.default_rng(0)
    for step in range(20):
        if step == 10:
            again.load_state_dict(first.state_dict())
        drawn = [sampler.draw(4, exclude=np.arange(step % 7)).sample_index for sampler in (first, again)]
        successes = chance.binomial(8, drawn[0] / 40)
        first.observe(drawn[0], successes, np.full(4, 8))
        if step >= 10:
            again.observe(drawn[1], successes, np.full(4, 8))
    assert state_digest(again) == state_digest(first)
    with pytest.raises(SnapshotMismatchError):
        first.load_state_dict((BOTSSampler if make is GRESOSampler else GRESOSampler)(40).state_dict())


def known(sampler, pass_rate):
    """Give every row so much evidence that a sampled pass rate is within 0.01 of the true one."""
    sampler.observe(np.arange(len(pass_rate)), np.array(pass_rate) * 1e6, np.full(len(pass_rate), 1e6))
    return sampler


def test_mopps_counts_and_takes_the_candidates_closest_to_a_half():
    sampler = MoPPSSampler(3)
    sampler.observe([0], [8], [8])  # a = 1 * 0.5 + 0.5 + 8 = 9, b = 1 * 0.5 + 0.5 + 0 = 1
    sampler.observe([0], [4], [8])  # a = 9 * 0.5 + 0.5 + 4 = 9, b = 1 * 0.5 + 0.5 + 4 = 5
    sampler.observe([1], [2], [8])  # row 0 was not scored, and is not forgotten
    a, b = sampler.belief()
    assert (a.tolist(), b.tolist()) == ([9, 3, 1], [5, 7, 1])
    pass_rate = [0.0, 0.9, 0.55, 0.3, 0.4, 1.0]  # distances 0.5, 0.4, 0.05, 0.2, 0.1, 0.5
    assert known(MoPPSSampler(6), pass_rate).draw(3).sample_index.tolist() == [2, 4, 3]
    sampler = MoPPSSampler(100, pool_factor=4)
    rows = [row for _ in range(6) for row in sampler.draw(4).sample_index.tolist()]
    assert len({*rows}) == 24  # the candidates of an epoch, 16 a draw, come once


def test_bots_counts_and_takes_the_rows_closest_to_the_target():
    sampler = BOTSSampler(2)
    sampler.observe([0], [8], [8])  # row 0: a = 0.9 * 1 + 0.1 + 8 = 9, b = 0.9 * 1 + 0.1 = 1
    sampler.observe([1], [2], [8])  # row 0: a = 0.9 * 9 + 0.1 = 8.2; row 1: a = 3, b = 0.9 + 0.1 + 6 = 7
    sampler.observe([0], [4], [8])  # row 0: a = 0.9 * 8.2 + 0.1 + 4 = 11.48, b = 5; row 1: 2.8 and 6.4
    np.testing.assert_allclose(np.concatenate(sampler.belief()), [11.48, 2.8, 5.0, 6.4], rtol=1e-14)
    assert known(BOTSSampler(6), [0.0, 0.9, 0.55, 0.3, 0.4, 1.0]).draw(4).sample_index.tolist() == [2, 4, 3, 1]


def test_the_mean_absolute_advantage_by_hand():
    successes, trials = np.array([[4, 8], [1, 8], [2, 3], [0, 8], [8, 8], [1, 1], [0, 0]], dtype=float).T
    expected = [
        0.5 / (math.sqrt(2 / 7) + 1e-4),
        0.21875 / (math.sqrt(0.125) + 1e-4),
        4 / 9 / (math.sqrt(1 / 3) + 1e-4),
    ]
    assert mean_absolute_advantage(successes, trials).tolist() == pytest.approx([*expected, 0, 0, 0, 0], rel=1e-14)


def test_sec_learns_the_mean_advantage_of_each_kind_and_draws_by_the_softmax():
    sampler = SECSampler(5, task=["b", "a", "a", "b", "c"])
    sampler.observe([1, 2, 0], [4, 0, 1], [8, 8, 8])
    a, b = 0.93523939, 0.61854348  # 0.5 / 0.53462248; 0.21875 / 0.35365339
    # kind a: (8 a + 8 * 0) / 16 = 0.46761969, halved by the learning rate; kind b: b / 2; kind c had no group
    assert sampler.state_dict()["memory"]["q"] == pytest.approx([a / 4, b / 2, 0.0], rel=1e-7)
    sampler = SECSampler(200, task=[0] * 100 + [1] * 100, temperature=0.5)
    sampler.load_state_dict(sampler.state_dict() | {"memory": {"q": [0.0, 0.5]}})
    kinds = np.concatenate([sampler.draw(4).sample_index >= 100 for _ in range(1000)])
    expected = math.e / (1 + math.e)  # exp(0.5 / 0.5) against exp(0)
    assert abs(kinds.mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)
    sampler = SECSampler(12, task=[0] * 3 + [1] * 3 + [2] * 6, temperature=1e-3)
    sampler.load_state_dict(sampler.state_dict() | {"memory": {"q": [0.5, 0.0, 1.0]}})
    assert {*sampler.draw(9).sample_index.tolist()} == {0, 1, 2, 6, 7, 8, 9, 10, 11}  # a kind is used up


def test_rows_are_drawn_by_the_weight_of_the_pool_of_their_latest_group():
    sampler = DifficultyPoolSampler(7)
    sampler.observe(range(6), [0, 2, 3, 6, 7, 8], [8] * 6)
    assert sampler.pools().tolist() == [0, 0, 1, 1, 2, 2, 3]
    sampler.observe([0, 5, 6], [8, 1, 0], [8, 8, 0])  # row 6 got no score
    assert sampler.pools().tolist() == [2, 0, 1, 1, 2, 0, 3]
    sampler = DifficultyPoolSampler(4, seed=1)
    sampler.observe([0, 1, 2], [0, 4, 8], [8, 8, 8])  # weights 0.2, 1, 0.2, 1, together 2.4
    first = np.bincount([sampler.draw(2).sample_index[0] for _ in range(6000)], minlength=4) / 6000
    assert np.abs(first - np.array([1, 5, 1, 5]) / 12).max() < 0.025  # 4 standard errors


def test_greso_counts_groups_on_end_and_skips_by_the_streak():
    sampler = GRESOSampler(4)
    for rows, successes, trials in (
        ([0, 1, 2], [8, 0, 3], [8, 8, 8]),
        ([0, 1, 2], [8, 0, 8], [8, 8, 8]),
        ([0, 1, 3], [0, 3, 0], [8, 8, 0]),  # row 3 got no score
        ([0, 1, 2, 3], [0.88, 0.11, 0.98, 0.12], [1, 1, 1, 1]),  # 0.88 is not easy, and 0.12 is not hard
    ):
        sampler.observe(rows, successes, trials)
    assert sampler.state_dict()["memory"]["streak"] == [0, -1, 2, 0]
    # p_easy = 0.5: kept with 1/2 after one group, 1/8 after three; p_hard = 0.9: 0.81 after two; never below 0.01
    streak, expected = np.repeat([0, 1, 3, -2, 50, -400], 2000), np.array([1, 0.5, 0.125, 0.81, 0.01, 0.01])
    sampler = GRESOSampler(len(streak))
    memory = {"p": [0.5, 0.9], "streak": streak.tolist()}
    sampler.load_state_dict(sampler.state_dict() | {"memory": memory})
    kept = sampler.draw(4500).sample_index  # about 4890 would be kept in the first epoch
    reached = sampler._order(0)[: sampler.state_dict()["position"]]
    rate = np.bincount(kept // 2000, minlength=6) / np.bincount(reached // 2000, minlength=6)
    assert (np.abs(rate - expected) <= 4 * np.sqrt(expected * (1 - expected) / 1800)).all()


def test_the_oracle_takes_the_likeliest_gradients_breaks_ties_by_chance_and_rests_rows():
    sampler = OracleSampler(3)
    sampler.set_pass_rates(np.array([0.5, 0.0, 0.1]), np.array([0.2, 0.9, 0.1]))
    draw = sampler.draw(2)
    assert (draw.sample_index.tolist(), draw.sampled_pass_rate.tolist()) == ([1, 0], [0.0, 0.5])
    sampler.observe([0, 1, 2], [0.0, 5e5, 5e5], [1e6] * 3)
    assert sampler.draw(1).sample_index.tolist() == [1]
    sampler = OracleSampler(20)
    sampler.set_pass_rates(np.tile([0.3, 0.7], 10), np.tile([0.8, 0.8 + 1e-15], 10))
    counts = np.bincount(np.concatenate([sampler.draw(5).sample_index for _ in range(2000)]), minlength=20)
    assert np.abs(counts - 500).max() < 4.5 * math.sqrt(2000 * 0.25 * 0.75)
    sampler, chosen = OracleSampler(4, cooldown=2), []
    sampler.set_pass_rates(np.full(4, 0.5), np.array([0.5, 0.4, 0.3, 0.2]))
    for _ in range(4):
        chosen += sampler.draw(1).sample_index.tolist()
        sampler.observe(chosen[-1:], [2], [4])
    assert chosen == [0, 1, 2, 0]
