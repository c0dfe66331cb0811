"""Thompson and uniform sampling by themselves; what every sampler does alike is in test_every_sampler.py."""

import numpy as np
import pytest

from tests.support.draws import bits, run
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotCorruptError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.posterior import DECAYS
from trl_vade.trainer.presets import PRESETS


def half_right(sampler, rows):
    sampler.observe(rows, np.full(len(rows), 4), np.full(len(rows), 8))


def test_settings_that_cannot_work_are_refused():
    for setting in ({"gain": "entropy"}, {"greedy": 1}, {"cooldown": -1}, {"cooldown": 0.5}, {"even_rest": -1}):
        with refused(ConfigurationError, names=[*setting, *setting.values()]):
            ThompsonSampler(5, **setting)
    for labels in (["a"] * 39, [None] * 40, [0.5] * 40, "a", np.zeros((40, 1), dtype=int)):
        with refused(ConfigurationError, names=["stratify", 40]):
            ThompsonSampler(40, stratify=labels)


def test_by_itself_it_forgets_as_balanced_does():
    rules, balanced = ThompsonSampler(300).state_dict()["settings"], PRESETS["balanced"]
    assert {name: rules[name] for name in DECAYS} == {name: balanced[name] for name in DECAYS}


def test_greedy_takes_the_posterior_mean_for_the_pass_rate():
    sampler = run(ThompsonSampler(12, greedy=True), 5)
    draw = sampler.draw(12)
    assert draw.sampled_pass_rate.tolist() == draw.posterior_mean.tolist()
    assert bits(draw) == bits(sampler.draw(12))  # the draw number makes no difference
    assert ThompsonSampler(12, greedy=True).draw(4).sample_index.tolist() == [0, 1, 2, 3]  # all equal


def test_where_too_few_rows_have_rested_those_that_rested_longest_come_first():
    sampler = ThompsonSampler(6, seed=1, cooldown=10)
    for rows in ([0, 1], [2, 3], [4]):
        half_right(sampler, np.array(rows))
    assert sampler.draw(1).sample_index.tolist() == [5]
    assert set(sampler.draw(3).sample_index.tolist()) == {5, 0, 1}
    assert set(sampler.draw(5).sample_index.tolist()) == {5, 0, 1, 2, 3}
    assert sampler.draw(6).sample_index[-1] == 4


def test_the_even_rest_is_that_of_spreads_where_outcomes_are_spreads():
    spreads, rates = (ThompsonSampler(40, even_rest=100) for _ in range(2))
    spreads.use_spreads()
    for sampler in (spreads, rates):
        sampler.observe(np.arange(40), np.full(40, 2), np.full(40, 8))
    assert spreads._steps_to_rest()[0] < rates._steps_to_rest()[0]


def test_the_even_rest_never_shortens_the_cooldown():
    sampler = ThompsonSampler(8, cooldown=2, even_rest=1)
    for rows in ([0, 1], [2, 3]):
        half_right(sampler, np.array(rows))
    assert set(sampler.draw(4).sample_index.tolist()) == {4, 5, 6, 7}


def taught(rows, **settings):
    """A sampler over 12 rows that has taken over that `rows` are right in a third of the cases."""
    sampler = ThompsonSampler(12, cooldown=5, **settings)
    sampler.take_over(rows, np.full(len(rows), 20.0), np.full(len(rows), 60.0))
    return sampler


def test_what_was_taken_over_is_used_at_once_and_rests_once_it_was_trained_on():
    sampler = taught([3, 8, 9], greedy=True)
    assert sampler.draw(2).sample_index.tolist() == [3, 8]  # 1/3 is the best there is; rows without evidence have 1/2
    sampler.observe([3, 8], [20, 20], [60, 60])
    assert sampler.draw(3).sample_index.tolist() == [9, 0, 1]
    first, second = taught([3, 8], seed=4), ThompsonSampler(12, cooldown=5, seed=4)
    second.load_state_dict(first.state_dict())
    for _ in range(8):
        draw = first.draw(2)
        assert bits(draw) == bits(second.draw(2))
        for each in (first, second):
            each.observe(draw.sample_index, [1, 2], [4, 4])
    second.load_state_dict(ThompsonSampler(12, cooldown=5, seed=4).state_dict())
    assert "taken_over" not in second.state_dict()


SIZES = {"rare": 2, "small": 8, "large": 30}
LABELS = [label for label, size in SIZES.items() for _ in range(size)]


@pytest.mark.parametrize("settings", [{}, {"greedy": True}, {"gain": "symmetric"}], ids=str)
def test_each_stratum_has_its_share_whatever_its_rows_are_worth(settings):
    """Of two strata all that is known is that they are never solved: by the gain alone nobody would choose them."""

    def taken(sampler):
        rows = sampler.draw(8).sample_index.tolist()
        return np.array([sum(LABELS[row] == label for row in rows) for label in SIZES])

    sampler, total = ThompsonSampler(40, stratify=LABELS, **settings), np.zeros(3)
    sampler.posterior.observe(np.arange(10), np.zeros(10), np.full(10, 1000))
    for _ in range(100):
        counts = taken(sampler)
        assert (np.abs(counts - [0.4, 1.6, 6.0]) < 1).all()
        total += counts
    assert (np.abs(total - [40, 160, 600]) < 3).all()
    plain = ThompsonSampler(40, **settings)
    plain.load_state_dict(sampler.state_dict())
    assert taken(plain).tolist() == [0, 0, 8]


RESTING = {"gain": "symmetric", "signal_aware_decay": True, "cooldown": 3}


@pytest.mark.parametrize("settings", [{}, RESTING, {"greedy": True}], ids=str)
def test_a_single_stratum_changes_no_draw(settings):
    plain, one = (ThompsonSampler(30, seed=2, stratify=labels, **settings) for labels in (None, ["all"] * 30))
    for excluded in ([], [1, 5], [], list(range(20))):
        draw = plain.draw(7, exclude=excluded)
        assert bits(draw) == bits(one.draw(7, exclude=excluded))
        for sampler in (plain, one):
            half_right(sampler, draw.sample_index)


@pytest.mark.parametrize(("num_samples", "k"), [(1, 1), (7, 3), (12, 4), (10, 10), (1000, 48), (9471, 512)])
def test_uniform_draws_are_the_batches_of_the_stock_trainer_whatever_the_outcomes(num_samples, k):
    from trl.trainer.utils import RepeatSampler

    stock = RepeatSampler(range(num_samples), mini_repeat_count=1, batch_size=k, shuffle=True, seed=42)
    sampler = UniformSampler(num_samples, seed=42)
    for _epoch in range(3):
        order = list(stock)
        for start in range(0, len(order), k):
            rows = sampler.draw(k).sample_index
            assert rows.tolist() == order[start : start + k]
            sampler.observe(rows, np.full(k, 8), np.full(k, 8))
    assert sampler.metrics()["mean_pass_rate"] > 0.6


def test_uniform_passes_over_rows_left_out_and_does_not_come_back_to_them_in_the_epoch():
    sampler, stock = UniformSampler(10, seed=4), UniformSampler(10, seed=4)
    order = stock.draw(10).sample_index.tolist()
    assert sampler.draw(3, exclude=order[1:3]).sample_index.tolist() == [order[0], order[3], order[4]]
    assert sampler.draw(2).sample_index.tolist() == order[5:7]
    assert sampler.draw(1, exclude=order[:1] + order[7:8]).sample_index.tolist() == order[8:9]
    assert sampler.draw(1).sample_index.tolist() == order[9:]


def test_an_epoch_that_would_take_forever_to_find_is_refused():
    sampler = UniformSampler(2)
    with refused(SnapshotCorruptError, names=["epoch", 10**9]):
        sampler.load_state_dict(sampler.state_dict() | {"epoch": 10**9})
    alone = UniformSampler(1)
    alone.load_state_dict(alone.state_dict() | {"epoch": 2**30})  # one row has one order
    assert alone.draw(1).sample_index.tolist() == [0]
