"""The draw of a huge pool has the distribution of the full one: its parts, and whole draws of a sampler.

The seeds are fixed, so that every statistical test is decided once; bounds are those of a level of about 0.001.
"""

import numpy as np
import pytest

from trl_vade import samplers
from trl_vade.fresh_rows import FEW, _window_draw, distinct_fresh, fresh_draw, window
from trl_vade.information import information_gain
from trl_vade.order import largest
from trl_vade.samplers import ThompsonSampler
from trl_vade.snapshot import load_snapshot, save_snapshot, state_digest

ALWAYS, NEVER = 1, 10**9  # values of FEW
GAINS = ("symmetric", "asymmetric")
both_gains = pytest.mark.parametrize("gain", GAINS)


def assert_same_distribution(ours, theirs):
    """Kolmogorov-Smirnov: the largest distance of two empirical distributions, 1.95 being the bound at level 0.001."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    places = np.concatenate([ours, theirs])
    shares = [np.searchsorted(sample, places, side="right") / sample.size for sample in (ours, theirs)]
    distance = np.abs(shares[0] - shares[1]).max()
    assert distance < 1.95 * np.sqrt(1 / ours.size + 1 / theirs.size)


def assert_uniform(counts):
    """Chi-square; its quantile by Wilson and Hilferty, 3.09 deviations of a normal variate up."""
    freedom = counts.size - 1
    expected = counts.sum() / counts.size
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3
    assert ((counts - expected) ** 2 / expected).sum() < quantile


def best(p, k, gain):
    """What a batch sees of the pass rates: those of the best and of the k-th row, the mean, the last gain."""
    gains = information_gain(p, gain)
    rows = largest(gains, k)
    return p[rows[0]], p[rows[-1]], p[rows].mean(), gains[rows[-1]]


def assert_the_best_agree(ours, theirs):
    for our_column, their_column in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        assert_same_distribution(our_column, their_column)


# ------------------------------------------------------------------------------------------------------- the parts


@both_gains
@pytest.mark.parametrize("width", [1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1.0])
def test_the_ends_of_the_window_are_equal_and_all_inside_beats_all_outside(gain, width):
    lo, hi = window(width, gain)
    assert 0 <= lo < hi <= 1
    assert hi - lo == pytest.approx(width, abs=1e-15)
    ends = information_gain([lo, hi], gain)
    assert ends[0] == pytest.approx(ends[1], abs=1e-15)
    inside = information_gain(np.linspace(lo, hi, 999), gain)
    outside = information_gain(np.concatenate([np.linspace(0, lo, 999), np.linspace(hi, 1, 999)]), gain)
    assert inside.min() >= outside.max() - 1e-15


@both_gains
@pytest.mark.parametrize(("n", "k"), [(2000, 5), (700, 60), (300, 1), (90, 60)])
def test_the_best_have_the_distribution_of_the_full_draw(gain, n, k):
    rng = np.random.default_rng(0)
    ours = [best(fresh_draw(n, k, gain, rng), k, gain) for _ in range(2000)]
    assert_the_best_agree(ours, [best(p, k, gain) for p in rng.random((2000, n))])


@both_gains
def test_they_have_it_too_where_fewer_than_k_fall_inside(gain):
    """A window far too small: 16 of 300 rows are expected inside, and 20 are wanted."""
    rng, n, k = np.random.default_rng(1), 300, 20
    draws = [_window_draw(n, k, 16 / n, gain, rng) for _ in range(3000)]
    short = [p.size == n for p in draws]
    assert all(p.size == n or p.size >= k for p in draws)
    assert 0.7 < np.mean(short) < 0.9
    theirs = rng.random((3000, n))
    assert_the_best_agree([best(p, k, gain) for p in draws], [best(p, k, gain) for p in theirs])
    # The case alone: of the full draws those with fewer than k inside.
    lo, hi = window(16 / n, gain)
    few = theirs[((theirs > lo) & (theirs < hi)).sum(axis=1) < k]
    cases = [p for p, is_short in zip(draws, short, strict=True) if is_short]
    assert_the_best_agree([best(p, k, gain) for p in cases], [best(p, k, gain) for p in few])
    for p in (np.concatenate(cases), np.concatenate(draws[:50])):
        assert ((p >= 0) & (p <= 1)).all()


@pytest.mark.parametrize(("n", "k", "least"), [(0, 3, 0), (1, 1, 1), (5, 9, 5), (5, 5, 5), (10**6, 512, 512)])
def test_as_many_are_returned_as_can_be_chosen_and_of_a_huge_pool_few(n, k, least):
    for seed in range(50):
        size = fresh_draw(n, k, "asymmetric", np.random.default_rng(seed)).size
        assert least <= size <= min(n, 2 * k + 32)


@pytest.mark.parametrize(("share", "count"), [(0.7, 4), (0.7, 25), (0.1, 2), (1.0, 1)])  # by rejection, and not
def test_every_fresh_row_is_as_likely_and_none_comes_twice(share, count):
    rng = np.random.default_rng(2)
    fresh = np.random.default_rng(5).permutation(50) < share * 50
    draws = np.array([distinct_fresh(count, fresh, rng) for _ in range(6000)])
    assert draws.dtype == np.int64
    assert draws.shape == (6000, count)
    assert fresh[draws].all()
    assert (np.diff(np.sort(draws, axis=1), axis=1) > 0).all()
    for place in {0, count - 1}:
        assert_uniform(np.bincount(draws[:, place], minlength=50)[fresh])


def test_all_fresh_rows_can_be_asked_for():
    fresh = np.array([True, False, True, True])
    assert sorted(distinct_fresh(3, fresh, np.random.default_rng(0)).tolist()) == [0, 2, 3]


# ------------------------------------------------------------------------------------------------------ whole draws


def fields(draw):
    return [draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]


def taught(num_samples, num_visited, **settings):
    """A sampler that saw `num_visited` rows; their pass rates are spread out."""
    sampler, rng = ThompsonSampler(num_samples, **settings), np.random.default_rng(3)
    for rows in np.array_split(rng.permutation(num_samples)[:num_visited], 4):
        sampler.observe(rows, rng.integers(0, 9, rows.size), np.full(rows.size, 8))
    return sampler


def drawn(monkeypatch, few, sampler, k, **arguments):
    monkeypatch.setattr(samplers, "FEW", few)
    return sampler.draw(k, **arguments)


@both_gains
@pytest.mark.parametrize("cooldown", [0, 3])
def test_whole_draws_agree_in_distribution(monkeypatch, gain, cooldown):
    n, k, num_draws = 1500, 60, 1200
    sampler, figures, chosen = taught(n, 300, gain=gain, seed=1, cooldown=cooldown), {}, {}
    visited = sampler.posterior.visits > 0
    for few in (ALWAYS, NEVER):
        sampler.load_state_dict(sampler.state_dict() | {"num_draws": few})  # other random numbers for each way
        draws = [drawn(monkeypatch, few, sampler, k) for _ in range(num_draws)]
        figures[few] = [
            (visited[d.sample_index].sum(), d.information_gain.mean(), d.information_gain[-1], d.posterior_mean.mean())
            for d in draws
        ]
        chosen[few] = np.bincount(np.concatenate([d.sample_index for d in draws]), minlength=n)
    assert_the_best_agree(figures[ALWAYS], figures[NEVER])
    assert_uniform(chosen[ALWAYS][~visited])
    assert 0.02 < chosen[ALWAYS][visited].sum() / (num_draws * k) < 0.9  # both kinds of rows matter
    # Each visited row is as often chosen both ways: the difference of two counts, in its deviations.
    ours, theirs = chosen[ALWAYS][visited], chosen[NEVER][visited]
    deviations = (ours - theirs) / np.sqrt(np.maximum(ours + theirs, 1))
    assert np.abs(deviations).max() < 4.5
    assert np.mean(deviations**2) < 1.3


def test_a_draw_describes_its_rows(monkeypatch):
    sampler = taught(400, 100, cooldown=1)
    draw, mean = drawn(monkeypatch, ALWAYS, sampler, 80), sampler.posterior.posterior_mean
    assert [array.shape for array in fields(draw)] == [(80,)] * 4
    assert [array.dtype for array in fields(draw)] == [np.int64] + [np.float64] * 3
    assert len(set(draw.sample_index.tolist())) == 80
    assert draw.posterior_mean.tolist() == mean[draw.sample_index].tolist()
    p = draw.sampled_pass_rate
    np.testing.assert_allclose(draw.information_gain, p * (1 - p) ** 2, rtol=1e-15)
    assert (np.diff(draw.information_gain) <= 0).all()


def test_rows_left_out_are_not_chosen(monkeypatch):
    for seed in range(40):
        sampler = taught(60, 20, seed=seed)
        excluded = np.random.default_rng(seed).permutation(60)[: 20 + seed % 20]
        left = np.setdiff1d(np.arange(60), excluded)
        some = drawn(monkeypatch, ALWAYS, sampler, 5, exclude=excluded).sample_index
        assert np.isin(some, left).all()
        assert len(set(some.tolist())) == 5
        every = drawn(monkeypatch, ALWAYS, sampler, left.size, exclude=excluded).sample_index
        assert sorted(every.tolist()) == left.tolist()


@pytest.mark.parametrize("decay", [0.999, 0.0])  # 0: a visited row without counts is still a row of its own
def test_resting_rows_come_last_and_those_that_rested_longest_first_of_them(monkeypatch, decay):
    for seed in range(10):
        sampler = ThompsonSampler(1000, seed=seed, cooldown=10, decay_unsampled=decay)
        parts = np.array_split(np.random.default_rng(seed).permutation(1000)[:900], 3)
        for rows in parts:
            sampler.observe(rows, np.full(300, 3), np.full(300, 8))
        for k in (7, 40, 100, 101, 400, 1000):
            rows = drawn(monkeypatch, ALWAYS, sampler, k).sample_index
            assert len(set(rows.tolist())) == k
            assert not np.isin(rows[:100], np.concatenate(parts)).any()
            for place, part in enumerate(parts):
                assert np.isin(rows[100 + 300 * place : 400 + 300 * place], part).all()


@pytest.mark.parametrize("settings", [{"greedy": True}, {"prior": "learned"}, {"uniform_share": 0.5}])
def test_where_rows_are_not_alike_nothing_changes(monkeypatch, settings):
    ours, theirs = (drawn(monkeypatch, few, taught(200, 80, **settings), 30) for few in (ALWAYS, NEVER))
    assert [array.tobytes() for array in fields(ours)] == [array.tobytes() for array in fields(theirs)]


@pytest.mark.parametrize(("num_fresh", "full"), [(FEW - 1, True), (FEW, False)])
def test_smaller_pools_are_drawn_in_full(num_fresh, full):
    sampler = ThompsonSampler(FEW + 9, seed=4)
    sampler.observe(np.arange(9), np.full(9, 3), np.full(9, 8))
    excluded = [] if num_fresh == FEW else [FEW]
    draw = sampler.draw(20, exclude=excluded)
    a, b = sampler.belief()
    p = np.random.Generator(np.random.Philox(key=np.array([4, 0], dtype=np.uint64))).beta(a, b)
    assert np.array_equal(draw.sampled_pass_rate, p[draw.sample_index]) is full


def test_a_resumed_sampler_goes_on_alike(tmp_path):
    sampler, rng = ThompsonSampler(2 * FEW, seed=7, cooldown=2), np.random.default_rng(0)

    def step(each, outcomes):
        draw = each.draw(256, exclude=[0, 5])
        each.observe(draw.sample_index, outcomes, np.full(256, 8))
        return [array.tobytes() for array in fields(draw)]

    for _ in range(5):
        step(sampler, rng.integers(0, 9, 256))
    save_snapshot(tmp_path, sampler)
    resumed = ThompsonSampler(2 * FEW, seed=7, cooldown=2)
    resumed.draw(3)  # it has done something else before
    resumed.load_state_dict(load_snapshot(tmp_path).sampler_state)
    for _ in range(5):
        outcomes = rng.integers(0, 9, 256)
        np.random.seed(0)
        assert step(sampler, outcomes) == step(resumed, outcomes)
    assert state_digest(sampler) == state_digest(resumed)
    other = ThompsonSampler(2 * FEW, seed=8).draw(9).sample_index
    assert set(other.tolist()).isdisjoint(ThompsonSampler(2 * FEW, seed=7).draw(9).sample_index.tolist())
