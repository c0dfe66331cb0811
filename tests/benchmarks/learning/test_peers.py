"""What each peer does by its paper, and that its draws are those of the runs in docs/results/learning.md."""

import hashlib
import math

import numpy as np
import pytest

from eval.benchmarks.learning.peers import (
    BOTSSampler,
    DifficultyPoolSampler,
    GRESOSampler,
    MoPPSSampler,
    SECSampler,
)
from eval.benchmarks.learning.peers.base import mean_absolute_advantage
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers.snapshot import state_digest
from trl_vade.trainer.own_sampler import make_own

ROOM = "eval.benchmarks.learning.peers"


def sec(num_samples, **kwargs):
    return SECSampler(num_samples, task=[f"kind {i % 3}" for i in range(num_samples)], **kwargs)


PEERS = [MoPPSSampler, BOTSSampler, sec, DifficultyPoolSampler, GRESOSampler]
FIRST_DRAWS = {  # of 60 batches, from the code of 2026-11-27, with which the arms of the benchmark ran
    MoPPSSampler: "375c8223e02e52ff",
    BOTSSampler: "d97ab7fd141c5152",
    sec: "bc313104705fcf04",
    DifficultyPoolSampler: "ae4a0ad876d03db4",
    GRESOSampler: "bb840ed1ffbc1777",
}
every_peer = pytest.mark.parametrize("make", PEERS, ids=["mopps", "bots", "sec", "pools", "greso"])


def digest_of_draws(sampler, steps=60, k=4):
    rng, digest = np.random.default_rng(0), hashlib.sha256()
    for step in range(steps):
        draw = sampler.draw(k, exclude=np.arange(step % 7) if step % 3 == 0 else None)
        for array in (draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean):
            digest.update(array.tobytes())
        sampler.observe(draw.sample_index, rng.binomial(8, draw.sample_index / 40), np.full(k, 8))
    return digest.hexdigest()[:16]


@every_peer
def test_the_draws_are_those_of_the_published_runs_with_a_resume_between(make):
    first, again = make(40, seed=3), make(40, seed=3)
    assert digest_of_draws(first) == FIRST_DRAWS[make]
    again.load_state_dict(first.state_dict())
    assert (state_digest(again), digest_of_draws(again)) == (state_digest(first), digest_of_draws(first))
    assert again.peek(8).sample_index.tolist() == again.draw(8).sample_index.tolist()


@pytest.mark.parametrize("name", ["MoPPSSampler", "BOTSSampler", "DifficultyPoolSampler", "GRESOSampler"])
def test_a_peer_is_a_sampler_by_its_path(name):
    assert type(make_own(f"{ROOM}:{name}", 8, seed=3)).__name__ == name


def known(sampler, pass_rate):
    """Give every row so much evidence that a sampled pass rate is within 0.01 of the true one."""
    sampler.observe(np.arange(len(pass_rate)), np.array(pass_rate) * 1e6, np.full(len(pass_rate), 1e6))
    return sampler


def test_the_state_of_other_tasks_or_another_rule_is_refused_by_naming_both_sides():
    for ours, theirs, names in ((sec(6), SECSampler(6, task=range(6)), ["task"]), (sec(6), GRESOSampler(6), ["sec"])):
        before = state_digest(ours)
        with refused(SnapshotMismatchError, names=names):
            ours.load_state_dict(theirs.state_dict())
        assert state_digest(ours) == before


WRONG_MEMORY = [
    (sec, {"q": [0.0, 0.5]}),
    (sec, {"q": [0.0, 0.5, math.nan]}),
    (GRESOSampler, {"p": [0.5, 1.0], "streak": [0] * 5}),
    (GRESOSampler, {"p": [0.5, 0.5], "streak": [0, 0, 0, 0, True]}),
]


@pytest.mark.parametrize(("make", "memory"), WRONG_MEMORY)
def test_a_damaged_memory_is_refused_and_changes_nothing(make, memory):
    sampler = make(5)
    before = state_digest(sampler)
    sampler.observe([0], [4], [8])
    learned = sampler.state_dict()
    fresh = make(5)
    with pytest.raises(SnapshotCorruptError):
        fresh.load_state_dict(learned | {"memory": memory})
    assert state_digest(fresh) == before


def test_each_setting_is_checked():
    wrong = {
        MoPPSSampler: [{"decay": 1.5}, {"pool_factor": 0}, {"target": 2}],
        BOTSSampler: [{"decay": -0.1}, {"target": None}],
        sec: [{"learning_rate": 2}, {"temperature": 0}],
        GRESOSampler: [{"target_zero_variance": -1}],
    }
    for make, each in wrong.items():
        for settings in each:
            with refused(ConfigurationError, names=list(settings)):
                make(5, **settings)
    with refused(ConfigurationError, names=["task"]):
        SECSampler(5, task=["a"])


# MoPPS


def test_mopps_counts_as_its_formula_does():
    sampler = MoPPSSampler(3)
    sampler.observe([0], [8], [8])  # a = 1 * 0.5 + 0.5 + 8 = 9, b = 1 * 0.5 + 0.5 + 0 = 1
    sampler.observe([0], [4], [8])  # a = 9 * 0.5 + 0.5 + 4 = 9, b = 1 * 0.5 + 0.5 + 4 = 5
    sampler.observe([1], [2], [8])  # row 0 was not scored, and is not forgotten
    a, b = sampler.belief()
    assert (a.tolist(), b.tolist()) == ([9, 3, 1], [5, 7, 1])


def test_mopps_takes_the_candidates_closest_to_a_half():
    pass_rate = [0.0, 0.9, 0.55, 0.3, 0.4, 1.0]  # distances 0.5, 0.4, 0.05, 0.2, 0.1, 0.5
    assert known(MoPPSSampler(6), pass_rate).draw(3).sample_index.tolist() == [2, 4, 3]
    assert known(MoPPSSampler(6, target=0.85), pass_rate).draw(2).sample_index.tolist() == [1, 5]


def test_mopps_looks_at_the_next_candidates_of_the_epoch_and_at_none_twice():
    pass_rate = np.arange(100) / 100
    sampler = known(MoPPSSampler(100, pool_factor=4), pass_rate)
    order = np.random.Generator(
        np.random.Philox(key=np.array([0, 0], dtype=np.uint64), counter=np.array([0, 0, 0, 1], dtype=np.uint64))
    ).permutation(100)
    for start in range(0, 96, 16):
        pool = order[start : start + 16].tolist()
        closest = sorted(pool, key=lambda row: abs(row / 100 - 0.5))
        rows = sampler.draw(4).sample_index.tolist()
        assert set(rows) <= set(closest[:5])  # the fourth and the fifth may be at the same distance
    assert sampler.state_dict()["epoch"] == 0
    sampler.draw(4)  # 4 rows are left, which is no pool of 16
    assert (sampler.state_dict()["epoch"], sampler.state_dict()["position"]) == (1, 16)


# BOTS


def test_bots_counts_as_its_formula_does():
    sampler = BOTSSampler(2)
    sampler.observe([0], [8], [8])  # row 0: a = 0.9 * 1 + 0.1 + 8 = 9, b = 0.9 * 1 + 0.1 = 1
    sampler.observe([1], [2], [8])  # row 0: a = 0.9 * 9 + 0.1 = 8.2; row 1: a = 3, b = 0.9 + 0.1 + 6 = 7
    sampler.observe([0], [4], [8])  # row 0: a = 0.9 * 8.2 + 0.1 + 4 = 11.48, b = 5; row 1: 2.8 and 6.4
    a, b = sampler.belief()
    np.testing.assert_allclose([*a, *b], [11.48, 2.8, 5.0, 6.4], rtol=1e-14)


def test_bots_takes_the_rows_closest_to_the_target():
    pass_rate = [0.0, 0.9, 0.55, 0.3, 0.4, 1.0]
    assert known(BOTSSampler(6), pass_rate).draw(4).sample_index.tolist() == [2, 4, 3, 1]
    assert known(BOTSSampler(6, target=0.32), pass_rate).draw(2).sample_index.tolist() == [3, 4]


# SEC


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [
        (4, 8, 0.5 / (math.sqrt(2 / 7) + 1e-4)),  # |r - 1/2| = 1/2; s^2 = (8 / 4) / 7
        (1, 8, 0.21875 / (math.sqrt(0.125) + 1e-4)),  # (7/8 + 7/8) / 8; s^2 = (49/64 + 7/64) / 7
        (2, 3, 4 / 9 / (math.sqrt(1 / 3) + 1e-4)),
        (0, 8, 0.0),
        (8, 8, 0.0),
        (1, 1, 0.0),
        (0.5, 1, 0.0),
        (0, 0, 0.0),
    ],
)
def test_the_mean_absolute_advantage_by_hand(successes, trials, expected):
    result = mean_absolute_advantage(np.array([float(successes)]), np.array([float(trials)]))
    assert result.tolist() == pytest.approx([expected], rel=1e-14)


def test_sec_learns_the_mean_advantage_of_each_kind():
    sampler = SECSampler(5, task=["b", "a", "a", "b", "c"])
    sampler.observe([1, 2, 0], [4, 0, 1], [8, 8, 8])
    a, b = 0.93523939, 0.61854348  # 0.5 / 0.53462248; 0.21875 / 0.35365339
    # kind a: (8 a + 8 * 0) / 16 = 0.46761969, halved by the learning rate; kind b: b / 2; kind c had no group
    expected = [a / 4, b / 2, 0.0]
    assert sampler.state_dict()["memory"]["q"] == pytest.approx(expected, rel=1e-7)
    sampler.observe([2], [4], [4 * 2])
    expected = [a / 8 + a / 2, b / 4, 0.0]  # a kind without a group had an advantage of 0
    assert sampler.state_dict()["memory"]["q"] == pytest.approx(expected, rel=1e-7)


def test_sec_draws_the_kinds_by_their_softmax():
    sampler = SECSampler(200, task=[0] * 100 + [1] * 100, temperature=0.5)
    sampler.load_state_dict(sampler.state_dict() | {"memory": {"q": [0.0, 0.5]}})
    kinds = np.concatenate([sampler.draw(4).sample_index >= 100 for _ in range(1000)])
    expected = math.e / (1 + math.e)  # exp(0.5 / 0.5) against exp(0)
    assert abs(kinds.mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_sec_goes_on_with_the_other_kinds_when_one_is_used_up():
    sampler = SECSampler(12, task=[0] * 3 + [1] * 3 + [2] * 6, temperature=1e-3)
    sampler.load_state_dict(sampler.state_dict() | {"memory": {"q": [0.5, 0.0, 1.0]}})
    assert set(sampler.draw(6).sample_index.tolist()) == {6, 7, 8, 9, 10, 11}
    assert set(sampler.draw(9).sample_index.tolist()) == {0, 1, 2, 6, 7, 8, 9, 10, 11}
    assert set(sampler.draw(5, exclude=range(8, 12)).sample_index.tolist()) == {0, 1, 2, 6, 7}


# Difficulty pools


def test_the_pool_of_a_row_is_that_of_its_latest_group():
    sampler = DifficultyPoolSampler(7)
    sampler.observe(range(6), [0, 2, 3, 6, 7, 8], [8] * 6)
    assert sampler.pools().tolist() == [0, 0, 1, 1, 2, 2, 3]
    sampler.observe([0, 5, 6], [8, 1, 0], [8, 8, 0])  # row 6 got no score
    assert sampler.pools().tolist() == [2, 0, 1, 1, 2, 0, 3]
    metrics = sampler.metrics()
    shares = [metrics[f"pool_{name}"] for name in ("hard", "normal", "easy", "unseen")]
    assert shares == pytest.approx([2 / 7, 2 / 7, 2 / 7, 1 / 7], rel=1e-15)


def test_rows_are_drawn_by_the_weight_of_their_pool():
    sampler = DifficultyPoolSampler(4, seed=1)
    sampler.observe([0, 1, 2], [0, 4, 8], [8, 8, 8])  # weights 0.2, 1, 0.2, 1, together 2.4
    rows = np.array([sampler.draw(2).sample_index for _ in range(6000)])
    first = np.bincount(rows[:, 0], minlength=4) / 6000
    assert np.abs(first - np.array([1, 5, 1, 5]) / 12).max() < 0.025  # 4 standard errors
    second = np.bincount(rows[rows[:, 0] == 1, 1], minlength=4)  # of 0.2, 0.2, 1 once row 1 is out
    assert np.abs(second / second.sum() - np.array([1, 0, 1, 5]) / 7).max() < 0.04


# GRESO


def greso_with(streak, p=(0.5, 0.5), **kwargs):
    sampler = GRESOSampler(len(streak), **kwargs)
    sampler.load_state_dict(sampler.state_dict() | {"memory": {"p": list(p), "streak": list(streak)}})
    return sampler


def test_greso_takes_every_row_once_in_the_first_epoch():
    sampler = GRESOSampler(10)
    rows = [row for _ in range(5) for row in sampler.draw(2).sample_index.tolist()]
    assert sorted(rows) == list(range(10))
    assert rows == sampler._order(0).tolist()


def test_greso_counts_groups_on_end():
    sampler = GRESOSampler(4)
    sampler.observe([0, 1, 2], [8, 0, 3], [8, 8, 8])
    sampler.observe([0, 1, 2], [8, 0, 8], [8, 8, 8])
    sampler.observe([0, 1, 3], [0, 3, 0], [8, 8, 0])  # row 3 got no score
    assert sampler.state_dict()["memory"]["streak"] == [-1, 0, 1, 0]
    # 0.88 is no easy group, and 0.12 is no hard one
    sampler.observe([0, 1, 2, 3], [0.88, 0.11, 0.98, 0.12], [1, 1, 1, 1])
    assert sampler.state_dict()["memory"]["streak"] == [0, -1, 2, 0]


def test_greso_skips_by_the_streak():
    # p_easy = 0.5: kept with 1/2 after one group, 1/8 after three; p_hard = 0.9: 0.81 after two; never below 0.01
    streak, expected = [0, 1, 3, -2, 50, -400], [1, 0.5, 0.125, 0.81, 0.01, 0.01]
    sampler = greso_with(np.repeat(streak, 2000).tolist(), p=(0.5, 0.9))
    kept = sampler.draw(4500).sample_index  # about 4890 would be kept in the first epoch
    assert sampler.state_dict()["epoch"] == 0
    reached = sampler._order(0)[: sampler.state_dict()["position"]]
    rate = np.bincount(kept // 2000, minlength=6) / np.bincount(reached // 2000, minlength=6)
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / 1800)
    assert (np.abs(rate - expected) <= 4 * error).all()


def test_greso_aims_at_the_share_of_groups_without_a_gradient():
    sampler = GRESOSampler(12)
    p = lambda: sampler.state_dict()["memory"]["p"]  # noqa: E731
    sampler.draw(12)
    sampler.observe(range(12), [8] * 12, [8] * 12)
    assert p() == [0.5, 0.5]  # nothing moves in the first epoch
    sampler.draw(1)
    sampler.observe(range(12), [8, 0] + [4] * 10, [8] * 12)  # 1/12 easy is the aim; 1/12 hard is below 2/12
    assert p() == pytest.approx([0.49, 0.51], rel=1e-14)
    sampler.observe(range(12), [4, 0, 0] + [4] * 9, [8] * 12)  # none easy; 2/12 hard is the aim
    assert p() == pytest.approx([0.5, 0.5], rel=1e-14)
    sampler.observe([3], [0], [0])  # no group was scored
    assert p() == pytest.approx([0.5, 0.5], rel=1e-14)
    for _ in range(60):
        sampler.observe([0], [8], [8])
    assert p() == [0.05, 0.95]
    assert (sampler.metrics()["p_easy"], sampler.metrics()["p_hard"]) == (0.05, 0.95)
