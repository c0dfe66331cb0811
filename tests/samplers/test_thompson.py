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


# State


def test_an_epoch_that_would_take_forever_to_find_is_refused():
    sampler = UniformSampler(2)
    with refused(SnapshotCorruptError, names=["epoch", 10**9]):
        sampler.load_state_dict(sampler.state_dict() | {"epoch": 10**9})
    alone = UniformSampler(1)
    alone.load_state_dict(alone.state_dict() | {"epoch": 2**30})  # one row has one order
    assert alone.draw(1).sample_index.tolist() == [0]
