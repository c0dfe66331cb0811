"""Peers as their authors run them, worked by hand."""

import numpy as np
import pytest

from eval.benchmarks.learning.peers.as_their_authors import SECWithoutReplacement, WholeBOTS


def told(sampler, *steps):
    for rows, successes in steps:
        sampler.observe(rows, successes, [8.0] * len(rows))
    return sampler


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
