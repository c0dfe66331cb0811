"""The benchmark's own rules, worked by hand, and peers as their authors run them."""

import numpy as np
import pytest

from eval.benchmarks.learning.challengers import (
    Calibrated,
    GrowingRest,
    MovedRates,
    RisingBlindShare,
    SECWithoutReplacement,
    WholeBOTS,
)
from trl_vade.samplers import ThompsonSampler

FRONTIER = {"signal_aware_decay": True}


def told(sampler, *steps):
    for rows, successes in steps:
        sampler.observe(rows, successes, [8.0] * len(rows))
    return sampler


@pytest.mark.parametrize("rule", [GrowingRest, MovedRates, RisingBlindShare])
def test_a_challenger_begins_as_the_default(rule):
    ours, theirs = (kind(64, seed=3, cooldown=2, **FRONTIER) for kind in (rule, ThompsonSampler))
    assert ours.draw(8).sample_index.tolist() == theirs.draw(8).sample_index.tolist()


def test_a_rest_doubles_with_each_group_without_a_gradient_and_ends_with_one():
    sampler = told(GrowingRest(4, cooldown=3, **FRONTIER), ([0, 1], [0, 4]))
    assert sampler.rest(np.arange(4)).tolist() == [3, 3, 0, 0]
    told(sampler, ([0], [0]))
    assert sampler.rest(np.arange(2)).tolist() == [6, 2]
    told(sampler, ([0], [4]))
    assert sampler.rest(np.arange(1)).tolist() == [3]


def test_the_blind_share_is_what_is_missing_of_the_promised_groups_up_to_one_half():
    sampler = RisingBlindShare(32, **FRONTIER)
    assert sampler.blind_share() == 0.0
    for first in range(0, 32, 8):
        told(sampler, (range(first, first + 8), [0] * 8))
    assert sampler.blind_share() == 0.5
    assert len(set(sampler.draw(8).sample_index.tolist())) == 8


def test_a_rate_that_moved_raises_the_value():
    sampler = told(MovedRates(2, **FRONTIER), ([0, 1], [2, 2]), ([0, 1], [8, 2]))
    same = np.array([0.5, 0.5])
    assert (sampler.value(same) / same**3).tolist() == pytest.approx([0.5 + 0.25 + 0.375, 0.5 + 0.25])


def test_the_factors_of_the_calibrated_rule_are_those_of_its_specification():
    sampler = Calibrated(6, decay_unsampled=0.999, **FRONTIER)
    factors = lambda: sampler._mixed / sampler._expected  # noqa: E731
    told(sampler, ([0, 1], [0, 8]))
    assert sampler._expected.tolist() == pytest.approx([5.555555555555555, 4, 4], rel=1e-12)
    assert factors().tolist() == pytest.approx([0.72, 1, 1])
    assert sampler.classes(*sampler.posterior.counts()).tolist() == [1, 2, 0, 0, 0, 0]
    told(sampler, ([2, 3], [4, 1]), ([0, 1], [0, 6]))
    assert sampler._mixed.tolist() == pytest.approx([5.96, 4, 5], rel=1e-12)
    assert factors().tolist() == pytest.approx([0.849196398039439, 0.894700774452623, 1.118375968065779], rel=1e-12)
    assert sampler.value(np.full(6, 0.4))[2] == pytest.approx(0.185903200618 * 0.849196398039439)


def test_bots_places_the_policy_between_its_references_and_tells_all_rows():
    sampler = WholeBOTS(np.array([[0.0, 1.0], [0.2, 0.6], [0.5, 0.5]]), seed=1)
    told(sampler, ([0], [4]))  # half-way between the references
    a, b = sampler.belief()
    assert a.tolist() == pytest.approx([0.9 + 0.1 + 8 * 0.5, 1 + 0.8 * 0.4, 1 + 0.8 * 0.5])
    assert b.tolist() == pytest.approx([0.9 + 0.1 + 8 * 0.5, 1 + 0.8 * 0.6, 1 + 0.8 * 0.5])


def test_sec_without_replacement_draws_every_row_of_a_kind_before_one_comes_again():
    sampler = SECWithoutReplacement(12, task=["a"] * 12, seed=1, temperature=0.4)
    first, again = (np.concatenate([sampler.draw(4).sample_index for _ in range(3)]).tolist() for _ in range(2))
    assert sorted(first) == sorted(again) == [*range(12)]
    assert len(set(sampler.draw(12).sample_index.tolist())) == 12
