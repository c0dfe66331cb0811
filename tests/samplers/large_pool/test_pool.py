"""The draw of a large pool has the distribution of the full one: against brute force, and against all of its settings.

The seeds are fixed, so that every statistical test is decided once; bounds are those of a level of about 0.001.
"""

import itertools
import tracemalloc

import numpy as np
import pytest

from tests.support.marks import slow
from trl_vade.samplers import thompson as samplers
from trl_vade.samplers.counts import LARGE
from trl_vade.samplers.information import information_gain
from trl_vade.samplers.large_pool import pool as large_pool
from trl_vade.samplers.large_pool import window
from trl_vade.samplers.large_pool.pool import LargePool
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest
from trl_vade.samplers.thompson import ThompsonSampler

ALWAYS, NEVER = 1, 10**9  # values of LARGE
both_gains = pytest.mark.parametrize("gain", [slow("symmetric"), "asymmetric"])


def assert_same_distribution(ours, theirs):
    """Kolmogorov-Smirnov: the largest distance of two empirical distributions, 1.95 being the bound at level 0.001."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    places = np.concatenate([ours, theirs])
    shares = [np.searchsorted(sample, places, side="right") / sample.size for sample in (ours, theirs)]
    distance = np.abs(shares[0] - shares[1]).max()
    assert distance < 1.95 * np.sqrt(1 / ours.size + 1 / theirs.size)


def chi_square_bound(freedom, deviations=3.09):
    """The quantile of chi-square by Wilson and Hilferty, as many deviations of a normal variate up."""
    return freedom * (1 - 2 / (9 * freedom) + deviations * np.sqrt(2 / (9 * freedom))) ** 3


def assert_uniform(counts):
    expected = counts.sum() / counts.size
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(counts.size - 1)


def fields(draw):
    return [draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]


def taught(num_samples, num_visited, **settings):
    """A sampler that saw `num_visited` rows; their pass rates are spread out."""
    sampler, rng = ThompsonSampler(num_samples, **settings), np.random.default_rng(3)
    for rows in np.array_split(rng.permutation(num_samples)[:num_visited], 4):
        sampler.observe(rows, rng.integers(0, 9, rows.size), np.full(rows.size, 8))
    return sampler


def drawn(monkeypatch, large, sampler, k, **arguments):
    monkeypatch.setattr(samplers, "LARGE", large)
    return sampler.draw(k, **arguments)


@pytest.fixture
def small_windows(monkeypatch):
    """Windows in small pools: in most draws fewer than k rows are inside, and the others have to be drawn."""
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: 0.3 * k)
    monkeypatch.setattr(window, "MOST_WIDTH", 0.45)
    monkeypatch.setattr(large_pool, "MOST_PROPOSED", 1.0)
    monkeypatch.setattr(large_pool, "SAMPLE", 16)
    monkeypatch.setattr(large_pool, "ROWS_OF_A_PART", 1)
    monkeypatch.setattr(samplers, "LARGE", ALWAYS)


# -------------------------------------------------------------------------------------------------- brute force


def brute_force(sampler, k, gain, num_draws):
    """(num_draws, k) rows: a pass rate for each row, and the best k by their gain, without the sampler's code."""
    rng, posterior = np.random.default_rng(11), sampler.posterior
    p = rng.beta(posterior.alpha + 1, posterior.beta + 1, size=(num_draws, posterior.num_samples))
    return np.argsort(-(p * (1 - p) ** 2 if gain == "asymmetric" else p * (1 - p)), axis=1)[:, :k]


def set_counts(draws, num_samples):
    """How often each set of rows was chosen, in an order of the sets."""
    codes = (1 << draws).sum(axis=1)
    sets = [sum(1 << row for row in rows) for rows in itertools.combinations(range(num_samples), draws.shape[1])]
    return np.array([np.count_nonzero(codes == code) for code in sets])


@both_gains
def test_every_set_of_rows_is_chosen_as_often_as_by_brute_force(gain, small_windows):
    """N = 5, from 0 to N of them fresh, k from 1 to N: two-sample chi-square of the sets, each and all together."""
    n, num_draws, total, freedom = 5, 40, 0.0, 0
    for num_fresh in range(n + 1):
        sampler = ThompsonSampler(n, seed=num_fresh, gain=gain)
        if num_fresh < n:
            known = np.arange(num_fresh, n)
            sampler.observe(known, known % 3, np.full(known.size, 2))
        assert sorted(sampler.draw(n).sample_index.tolist()) == list(range(n))
        for k in range(1, n):
            ours = set_counts(np.array([sampler.draw(k).sample_index for _ in range(num_draws)]), n)
            theirs = set_counts(brute_force(sampler, k, gain, 50 * num_draws), n)
            assert ours.sum() == num_draws
            expected = theirs / 50
            statistic = ((ours - expected) ** 2 / (expected * 1.02)).sum()  # 1/50 is the noise of what is expected
            assert statistic < chi_square_bound(ours.size - 1, 4)
            total, freedom = total + statistic, freedom + ours.size - 1
    assert total < chi_square_bound(freedom, 4)


@pytest.mark.parametrize(  # mostly fewer than k inside, and mostly enough
    ("deviations", "gain"),
    [slow(0.3, "asymmetric"), slow(3.0, "symmetric"), slow(0.3, "symmetric"), (3.0, "asymmetric")],
)
def test_larger_pools_agree_with_brute_force_row_by_row(monkeypatch, gain, deviations):
    n, k, num_draws = 400, 20, 1000
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: deviations * k)
    monkeypatch.setattr(large_pool, "MOST_PROPOSED", 0.9)
    sampler = taught(n, 120, gain=gain)
    visited = sampler.posterior.visited
    ours = np.array([drawn(monkeypatch, ALWAYS, sampler, k).sample_index for _ in range(num_draws)])
    theirs = brute_force(sampler, k, gain, num_draws)
    counts = [np.bincount(draws.ravel(), minlength=n) for draws in (ours, theirs)]
    fresh = np.setdiff1d(np.arange(n), visited)
    assert_uniform(counts[0][fresh])
    difference = (counts[0] - counts[1])[visited] / np.sqrt(np.maximum(counts[0] + counts[1], 1))[visited]
    assert np.abs(difference).max() < 4
    assert np.mean(difference**2) < 1.4
    assert_same_distribution(*(np.isin(draws, visited).sum(axis=1) for draws in (ours, theirs)))


def test_both_ways_into_the_window_are_taken_and_both_out_of_it(monkeypatch, small_windows):
    """What the tests here rest on: that small pools get to each branch that a large one has."""
    seen = set()
    for name in ("_thinned", "_others_of", "_drawn"):
        method = getattr(LargePool, name)
        monkeypatch.setattr(LargePool, name, lambda *a, _m=method, _n=name: (seen.add(_n), _m(*a))[1])
    sampler = taught(60, 20)
    for _ in range(20):
        sampler.draw(10)
    assert seen == {"_thinned", "_others_of", "_drawn"}


def both_ways(monkeypatch, sampler, k, num_draws, **arguments):
    """(num_draws, k) sampled pass rates, by the window and by the full draw."""
    rates = []
    for large in (ALWAYS, NEVER):
        sampler.load_state_dict(sampler.state_dict() | {"num_draws": large})  # other random numbers for each way
        draws = [drawn(monkeypatch, large, sampler, k, **arguments) for _ in range(num_draws)]
        rates.append(np.array([draw.sampled_pass_rate for draw in draws]))
    return rates


@both_gains
def test_where_too_few_are_inside_the_others_have_pass_rates_from_outside(monkeypatch, gain):
    """In nearly every draw: half of the k are to be expected inside."""
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: 0.5 * k)
    monkeypatch.setattr(window, "MOST_WIDTH", 0.45)
    ours, theirs = both_ways(monkeypatch, ThompsonSampler(40, gain=gain), 20, 400)
    for figure in (np.mean, np.std, np.min, np.max):
        assert_same_distribution(figure(ours, axis=1), figure(theirs, axis=1))
    for place in (0, 9, 19):
        assert_same_distribution(ours[:, place], theirs[:, place])


def test_rows_of_which_a_little_is_known_are_in_the_window_as_often_as_they_are(monkeypatch):
    """Few counts, at the mode of the gain: the densities there are nearest to the bound that all are held against."""
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: 1.5 * k)
    monkeypatch.setattr(large_pool, "MOST_PROPOSED", 1.0)
    sampler = ThompsonSampler(2000, decay_sampled=1.0)
    known = np.arange(300)
    sampler.observe(known, np.where(known < 150, 1, 0), np.full(300, 3))
    ours, theirs = both_ways(monkeypatch, sampler, 40, 300)
    chosen = [np.abs(rates - 1 / 3).max(axis=1) for rates in (ours, theirs)]
    assert_same_distribution(*chosen)
    counts = [
        np.array([np.count_nonzero(drawn(monkeypatch, large, sampler, 40).sample_index < 150) for _ in range(300)])
        for large in (ALWAYS, NEVER)
    ]
    assert_same_distribution(*counts)
    assert 4 < counts[1].mean() < 20


# ------------------------------------------------------------------------------------------- against the full draw

LABELS = np.random.default_rng(8).permutation(np.repeat([0, 1, 2], [600, 250, 50]))
SETTINGS = {
    "paper": {},
    "symmetric": {"gain": "symmetric"},
    "cooldown": {"cooldown": 2},
    "stratified": {"stratify": LABELS, "cooldown": 1},
    "all": {"gain": "symmetric", "cooldown": 2, "stratify": LABELS, "signal_aware_decay": True},
}


@pytest.mark.parametrize(
    ("name", "num_visited"),
    [
        slow("paper", 870),
        ("cooldown", 300),
        ("stratified", 300),
        slow("all", 900),
        slow("symmetric", 900),
        *(slow(name, 300) for name in SETTINGS if name not in ("cooldown", "stratified")),
    ],
)
def test_with_every_setting_the_draws_agree_with_the_full_ones_in_distribution(monkeypatch, name, num_visited):
    k, num_draws, excluded, settings = 40, 200, np.arange(0, 900, 30), SETTINGS[name]
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: 1.2 * k + 3)
    monkeypatch.setattr(large_pool, "MOST_PROPOSED", 0.9)
    monkeypatch.setattr(large_pool, "ROWS_OF_A_PART", 1)
    sampler, figures, chosen = taught(900, num_visited, seed=1, **settings), {}, {}
    visited = sampler.posterior.visits > 0
    for large in (ALWAYS, NEVER):
        sampler.load_state_dict(sampler.state_dict() | {"num_draws": large})  # other random numbers for each way
        draws = [drawn(monkeypatch, large, sampler, k, exclude=excluded) for _ in range(num_draws)]
        rates = [draw.sampled_pass_rate for draw in draws]
        figures[large] = [
            [rate[0] for rate in rates],
            [rate[-1] for rate in rates],
            [rate.mean() for rate in rates],
            [draw.information_gain.min() for draw in draws],
            [draw.posterior_mean.mean() for draw in draws],
            [visited[draw.sample_index].sum() for draw in draws],
            [LABELS[draw.sample_index].sum() for draw in draws],
        ]
        chosen[large] = np.bincount(np.concatenate([draw.sample_index for draw in draws]), minlength=900)
    for ours, theirs in zip(figures[ALWAYS], figures[NEVER], strict=True):
        assert_same_distribution(ours, theirs)
    assert not chosen[ALWAYS][excluded].any()
    ours, theirs = chosen[ALWAYS], chosen[NEVER]
    deviations = (ours - theirs) / np.sqrt(np.maximum(ours + theirs, 1))
    assert np.abs(deviations).max() < 4.5
    assert np.mean(deviations**2) < 1.3


@pytest.mark.parametrize(
    "settings",
    [{}, {"cooldown": 2}, {"stratify": LABELS}],
)
def test_a_greedy_draw_is_the_full_one(monkeypatch, settings):
    monkeypatch.setattr(large_pool, "ROWS_OF_A_PART", 1)
    for visited, k in ((0, 64), (300, 64), (300, 450)):
        sampler, draws = taught(900, visited, greedy=True, **settings), []
        for large in (ALWAYS, NEVER):
            sampler.load_state_dict(sampler.state_dict() | {"num_draws": 3})
            draws.append(drawn(monkeypatch, large, sampler, k, exclude=[0, 5, 6]))
        for ours, theirs in zip(*map(fields, draws), strict=True):
            assert ours.tolist() == theirs.tolist()


# ------------------------------------------------------------------------------------------------------ whole draws


def test_a_draw_describes_its_rows(monkeypatch):
    sampler = taught(400, 100, cooldown=1)
    draw, mean = drawn(monkeypatch, ALWAYS, sampler, 80), sampler.posterior.posterior_mean
    assert [array.shape for array in fields(draw)] == [(80,)] * 4
    assert [array.dtype for array in fields(draw)] == [np.int64] + [np.float64] * 3
    assert len(set(draw.sample_index.tolist())) == 80
    assert draw.posterior_mean.tolist() == mean[draw.sample_index].tolist()
    np.testing.assert_array_equal(draw.information_gain, information_gain(draw.sampled_pass_rate))
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
    for seed in range(5):
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


def test_a_stratum_without_free_rows_leaves_its_places_to_the_best_of_the_others(monkeypatch):
    monkeypatch.setattr(large_pool, "wanted_inside", lambda k: k)  # no more candidates than are needed
    monkeypatch.setattr(large_pool, "ROWS_OF_A_PART", 1)
    stratify = np.repeat([0, 1, 2], 300)
    sampler = ThompsonSampler(900, seed=2, cooldown=5, stratify=stratify)
    sampler.observe(np.arange(600, 895), np.full(295, 4), np.full(295, 8))
    lowest = {ALWAYS: [], NEVER: []}
    for large in lowest:
        for _ in range(200):
            draw = drawn(monkeypatch, large, sampler, 60, exclude=[899])
            assert len(set(draw.sample_index.tolist())) == 60
            counts = np.bincount(stratify[draw.sample_index], minlength=3)
            assert counts[2] == 4  # all that neither rest nor are left out
            assert counts[:2].min() >= 20
            lowest[large].append(draw.information_gain.min())
    assert_same_distribution(lowest[ALWAYS], lowest[NEVER])


@pytest.mark.parametrize("settings", [{}, {"stratify": np.arange(LARGE) % 4}])
def test_few_or_no_rows_are_left_to_choose_from(settings):
    sampler = ThompsonSampler(LARGE, **settings)
    for num_left in (LARGE // 5, 100, 10):
        rows = sampler.draw(10, exclude=np.arange(LARGE - num_left)).sample_index
        assert len(set(rows.tolist())) == 10
        assert rows.min() >= LARGE - num_left
    one_stratum = np.flatnonzero(np.arange(LARGE) % 4 == 1)
    assert len(set(sampler.draw(100, exclude=one_stratum[:-3]).sample_index.tolist())) == 100


def test_with_many_strata_a_pool_is_drawn_in_full():
    few, many = (ThompsonSampler(LARGE, seed=4, stratify=np.arange(LARGE) % number) for number in (20, 50))
    p = np.random.Generator(np.random.Philox(key=np.array([4, 0], dtype=np.uint64))).beta(*few.belief())
    for sampler, full in ((few, False), (many, True)):
        draw = sampler.draw(100)
        assert np.array_equal(draw.sampled_pass_rate, p[draw.sample_index]) is full


@pytest.mark.parametrize("full", [True, False])
def test_smaller_pools_are_drawn_in_full(full):
    size = LARGE - full
    sampler = ThompsonSampler(size, seed=4)
    sampler.observe(np.arange(9), np.full(9, 3), np.full(9, 8))
    draw = sampler.draw(20)
    p = np.random.Generator(np.random.Philox(key=np.array([4, 0], dtype=np.uint64))).beta(*sampler.belief())
    assert np.array_equal(draw.sampled_pass_rate, p[draw.sample_index]) is full


@pytest.mark.parametrize("settings", [{"cooldown": 2}, {"gain": "symmetric"}])
def test_a_resumed_sampler_goes_on_alike(tmp_path, settings):
    sampler, rng = ThompsonSampler(2 * LARGE, seed=7, **settings), np.random.default_rng(0)

    def step(each, outcomes):
        draw = each.draw(256, exclude=[0, 5])
        each.observe(draw.sample_index, outcomes, np.full(256, 8))
        return [array.tobytes() for array in fields(draw)]

    for _ in range(5):
        step(sampler, rng.integers(0, 9, 256))
    save_snapshot(tmp_path, sampler)
    resumed = ThompsonSampler(2 * LARGE, seed=7, **settings)
    resumed.draw(3)  # it has done something else before
    resumed.load_state_dict(load_snapshot(tmp_path).sampler_state)
    for _ in range(5):
        outcomes = rng.integers(0, 9, 256)
        np.random.seed(0)
        assert step(sampler, outcomes) == step(resumed, outcomes)
    assert state_digest(sampler) == state_digest(resumed)
    other = ThompsonSampler(2 * LARGE, seed=8).draw(9).sample_index
    assert set(other.tolist()).isdisjoint(ThompsonSampler(2 * LARGE, seed=7).draw(9).sample_index.tolist())


@pytest.fixture
def peak_memory():
    """What Python and numpy have asked for at once, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_a_pool_of_ten_thousand_million_rows_costs_what_was_visited(tmp_path, peak_memory):
    """All five verbs: an array of one byte a row would be refused by this machine, or seen here."""

    def fresh():
        return ThompsonSampler(10**10, cooldown=3)

    sampler, resumed = fresh(), fresh()
    for _ in range(4):
        draw = sampler.draw(512, exclude=[7])
        assert len(set(draw.sample_index.tolist())) == 512
        sampler.observe(draw.sample_index, np.arange(512) % 9, np.full(512, 8))
    metrics = sampler.metrics()
    assert metrics["coverage"] == pytest.approx(2048 / 10**10)
    assert 0 < metrics["mean_pass_rate"] < 1
    save_snapshot(tmp_path, sampler)
    resumed.load_state_dict(load_snapshot(tmp_path).sampler_state)
    assert resumed.draw(9).sample_index.tolist() == sampler.draw(9).sample_index.tolist()
    assert peak_memory() < 20e6
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 70_000
