"""Thompson and uniform sampling by themselves; what every sampler does alike is in test_every_sampler.py."""

import numpy as np
import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotCorruptError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.uniform import stock_order

both = pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])


def fields(draw):
    return [draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]


def assert_same_draw(ours, theirs):
    assert [array.tobytes() for array in fields(ours)] == [array.tobytes() for array in fields(theirs)]


def run(sampler, num_steps, k=4, seed=0):
    """Draw and observe as a training run does; row i is solved with a probability of about i / N."""
    rng = np.random.default_rng(seed)
    for _ in range(num_steps):
        rows = sampler.draw(k).sample_index
        sampler.observe(rows, rng.binomial(8, rows / sampler.posterior.num_samples), np.full(k, 8))
    return sampler


@both
def test_bad_settings_are_refused_at_construction(kind):
    with refused(ConfigurationError, names=["decay_sampled", 1.5]):
        kind(5, decay_sampled=1.5)
    with refused(ConfigurationError, names=["decay_unsampled", -0.5]):
        kind(5, decay_unsampled=-0.5)


def test_an_unknown_gain_or_greedy_setting_is_refused():
    with refused(ConfigurationError, names=["gain", "entropy"], offers=["symmetric", "asymmetric"]):
        ThompsonSampler(5, gain="entropy")
    with refused(ConfigurationError, names=["greedy", 1]):
        ThompsonSampler(5, greedy=1)


@both
def test_the_metrics_are_coverage_and_mean_pass_rate(kind):
    sampler = kind(4)
    assert sampler.metrics() == {"coverage": 0.0, "mean_pass_rate": 0.5}
    sampler.observe([0, 2, 3], [8, 0, 0], [8, 8, 0])
    # rows 0 and 2 were visited; means 9/10, 1/2, 1/10, 1/2
    assert sampler.metrics() == {"coverage": 0.5, "mean_pass_rate": pytest.approx(0.5, rel=1e-15)}


# Thompson sampling


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (2.0, 6.0), (8.0, 0.0), (0.5, 1000.0), (300.0, 200.0)])
def test_draws_follow_the_beta_distribution_of_the_posterior(alpha, beta):
    from scipy.stats import beta as beta_distribution
    from scipy.stats import kstest

    sampler = ThompsonSampler(5000, seed=3)
    sampler.observe(np.arange(5000), np.full(5000, alpha), np.full(5000, alpha + beta))
    draw = sampler.draw(5000)  # all of them: fewer would be the best ones, which follow another distribution
    by_row = draw.sampled_pass_rate[np.argsort(draw.sample_index)]
    expected = beta_distribution(alpha + 1, beta + 1)
    # The seed is fixed, so this is decided once. The slip Beta(alpha, beta + 1) has p < 1e-11 where alpha <= 8.
    assert kstest(by_row, expected.cdf).pvalue > 0.001
    assert kstest(by_row[:2500], by_row[2500:]).pvalue > 0.001  # the same in the first rows and in the last


def test_one_row_follows_its_posterior_over_many_draws():
    from scipy.stats import beta as beta_distribution
    from scipy.stats import kstest

    sampler = ThompsonSampler(1, seed=11)
    sampler.observe([0], [3], [8])
    pass_rates = np.concatenate([sampler.draw(1).sampled_pass_rate for _ in range(3000)])
    assert kstest(pass_rates, beta_distribution(4, 6).cdf).pvalue > 0.001
    assert abs(np.corrcoef(pass_rates[1:], pass_rates[:-1])[0, 1]) < 0.05


def test_a_draw_depends_on_the_seed_the_draw_number_and_the_posterior_alone():
    first, again = ThompsonSampler(50, seed=5), ThompsonSampler(50, seed=5)
    np.random.seed(0)
    draw = first.draw(10)
    np.random.seed(1)
    assert_same_draw(draw, again.draw(10))
    assert first.draw(10).sample_index.tolist() != draw.sample_index.tolist()
    assert ThompsonSampler(50, seed=6).draw(10).sample_index.tolist() != draw.sample_index.tolist()
    again.observe([0], [1], [8])
    assert again.draw(50).sampled_pass_rate.tolist() != first.draw(50).sampled_pass_rate.tolist()
    # A batch of another size uses the same random numbers.
    assert ThompsonSampler(50, seed=5).draw(3).sample_index.tolist() == draw.sample_index[:3].tolist()


def test_rows_with_much_evidence_are_chosen_by_their_gain():
    sampler = ThompsonSampler(5)
    # pass rates near 0, 1/3, 1/2, 3/4, 1: gains near 0, 0.148, 0.125, 0.047, 0
    sampler.observe(np.arange(5), np.array([0, 4, 6, 9, 12]) * 1e6, np.full(5, 12e6))
    assert sampler.draw(3).sample_index.tolist() == [1, 2, 3]
    symmetric = ThompsonSampler(5, gain="symmetric")
    symmetric.observe(np.arange(5), np.array([0, 4, 6, 9, 12]) * 1e6, np.full(5, 12e6))
    assert symmetric.draw(3).sample_index.tolist() == [2, 1, 3]  # 1/4, 2/9, 3/16
    p = symmetric.draw(3).sampled_pass_rate
    np.testing.assert_allclose(p * (1 - p), [1 / 4, 2 / 9, 3 / 16], rtol=1e-2)


def test_greedy_takes_the_posterior_mean_for_the_pass_rate():
    sampler = run(ThompsonSampler(12, greedy=True), 5)
    draw = sampler.draw(12)
    assert draw.sampled_pass_rate.tolist() == draw.posterior_mean.tolist()
    assert_same_draw(draw, sampler.draw(12))  # the draw number makes no difference
    assert ThompsonSampler(12, greedy=True).draw(4).sample_index.tolist() == [0, 1, 2, 3]  # all equal


# Uniform sampling


@pytest.mark.parametrize(("num_samples", "k"), [(1, 1), (7, 3), (12, 4), (10, 10), (1000, 48), (9471, 512)])
def test_uniform_draws_are_the_batches_of_the_stock_trainer(num_samples, k):
    from trl.trainer.utils import RepeatSampler

    stock = RepeatSampler(range(num_samples), mini_repeat_count=1, batch_size=k, shuffle=True, seed=42)
    sampler = UniformSampler(num_samples, seed=42)
    for _epoch in range(3):
        order = list(stock)
        for start in range(0, len(order), k):
            assert sampler.draw(k).sample_index.tolist() == order[start : start + k]


def test_a_draw_that_does_not_fit_starts_the_next_epoch():
    sampler = UniformSampler(10, seed=1)
    rows = [sampler.draw(k).sample_index.tolist() for k in (6, 5, 5, 1)]
    assert rows[0] == stock_order(10, 1, 0)[:6].tolist()
    assert rows[1] == stock_order(10, 1, 1)[:5].tolist()  # 4 rows of epoch 0 are dropped
    assert rows[2] == stock_order(10, 1, 1)[5:].tolist()
    assert rows[3] == stock_order(10, 1, 2)[:1].tolist()


def test_outcomes_never_change_a_uniform_choice():
    blind, informed = UniformSampler(30, seed=2), UniformSampler(30, seed=2)
    for _ in range(20):
        rows = informed.draw(7).sample_index
        assert blind.draw(7).sample_index.tolist() == rows.tolist()
        informed.observe(rows, np.full(7, 8), np.full(7, 8))
    assert informed.posterior.step == 20
    assert informed.metrics()["mean_pass_rate"] > 0.6


def test_more_rows_than_torch_shuffles_in_this_way_are_refused():
    with refused(ConfigurationError, names=["num_samples", 214748364], offers=[214748363]):
        UniformSampler(2**32 // 20)


# State


def test_a_position_beyond_the_epoch_is_refused():
    sampler = UniformSampler(5)
    with refused(SnapshotCorruptError, names=["position", 6]):
        sampler.load_state_dict(sampler.state_dict() | {"position": 6})


def test_an_epoch_that_would_take_forever_to_find_is_refused():
    sampler = UniformSampler(2)
    with refused(SnapshotCorruptError, names=["epoch", 10**9]):
        sampler.load_state_dict(sampler.state_dict() | {"epoch": 10**9})
    alone = UniformSampler(1)
    alone.load_state_dict(alone.state_dict() | {"epoch": 2**30})  # one row has one order
    assert alone.draw(1).sample_index.tolist() == [0]
