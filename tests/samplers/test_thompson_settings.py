"""What goes beyond the paper's rule in a draw: cooldown, strata, rows left out."""

import numpy as np
import pytest
from hypothesis import settings

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.samplers import ThompsonSampler, UniformSampler

few = settings(deadline=None, derandomize=True, max_examples=50)
RESTING = {"gain": "symmetric", "signal_aware_decay": True, "cooldown": 3}


def half_right(sampler, rows):
    sampler.observe(rows, np.full(len(rows), 4), np.full(len(rows), 8))


def test_where_too_few_rows_have_rested_those_that_rested_longest_come_first():
    sampler = ThompsonSampler(6, seed=1, cooldown=10)
    for rows in ([0, 1], [2, 3], [4]):
        half_right(sampler, np.array(rows))
    assert sampler.draw(1).sample_index.tolist() == [5]
    assert set(sampler.draw(3).sample_index.tolist()) == {5, 0, 1}
    assert set(sampler.draw(5).sample_index.tolist()) == {5, 0, 1, 2, 3}
    assert sampler.draw(6).sample_index[-1] == 4


@pytest.mark.parametrize("setting", [{"cooldown": -1}, {"cooldown": 0.5}, {"even_rest": -1}, {"even_rest": 0.5}])
def test_a_rest_that_is_no_number_of_steps_is_refused(setting):
    with refused(ConfigurationError, names=[*setting, *setting.values()]):
        ThompsonSampler(5, **setting)


def test_the_share_is_that_of_spreads_where_outcomes_are_spreads():
    rests = []
    for told in (ThompsonSampler.use_spreads, lambda sampler: None):
        sampler = ThompsonSampler(40, even_rest=100)
        told(sampler)
        sampler.observe(np.arange(40), np.full(40, 2), np.full(40, 8))
        rests.append(sampler._steps_to_rest()[0])
    assert rests[0] < rests[1]


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


def test_the_cooldown_goes_before_the_share():
    """The rows of a stratum that all rest are not chosen again at once: other strata take its places."""
    sampler = ThompsonSampler(40, stratify=LABELS, cooldown=3)
    half_right(sampler, np.arange(10))
    for _ in range(5):
        assert taken(sampler.draw(8).sample_index) == {"rare": 0, "small": 0, "large": 8}
    assert taken(sampler.draw(32).sample_index)["large"] == 30  # no other row is left


@pytest.mark.parametrize("labels", [["a"] * 39, [None] * 40, [0.5] * 40, "a", np.zeros((40, 1), dtype=int)], ids=str)
def test_strata_that_are_no_label_for_each_row_are_refused(labels):
    with refused(ConfigurationError, names=["stratify", 40]):
        ThompsonSampler(40, stratify=labels)
