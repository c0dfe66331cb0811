"""The top k and the stock trainer's permutation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.samplers.top_k import largest
from trl_vade.samplers.uniform import stock_order

exhaustive = settings(deadline=None, derandomize=True, max_examples=60)


@exhaustive
@given(values=st.lists(st.integers(0, 6), min_size=1, max_size=40), data=st.data())
def test_the_largest_are_those_of_a_full_stable_sort(values, data):
    k = data.draw(st.integers(1, len(values)))
    gains = np.array(values) / 8  # few levels, many ties
    assert largest(gains, k).tolist() == sorted(range(len(values)), key=lambda i: (-gains[i], i))[:k]


@pytest.mark.parametrize("k", [1, 17, 512, 5000])
def test_the_largest_of_many_gains_are_those_of_a_full_stable_sort(k):
    gains = np.random.default_rng(0).random(5000).round(3)
    assert largest(gains, k).tolist() == np.argsort(-gains, kind="stable")[:k].tolist()


@pytest.mark.parametrize("period", [8, 5])
@pytest.mark.parametrize("sign", [1, -1])
def test_values_that_every_eighth_one_says_nothing_of_are_no_trap(period, sign):
    rng = np.random.default_rng(1)
    for gains in (np.arange(4000) % period == 0) * sign + rng.random((3, 4000)).round(2):
        for k in (1, 100, 499):
            assert largest(gains, k).tolist() == np.argsort(-gains, kind="stable")[:k].tolist()


@pytest.mark.parametrize("num_samples", [1, 2, 3, 10, 1000, 9471])
@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1, 2**32 + 7, 2**63 - 1])
def test_the_order_of_every_epoch_is_torchs(num_samples, seed):
    import torch

    generator = torch.Generator().manual_seed(seed)
    for epoch in range(4):
        expected = torch.randperm(num_samples, generator=generator).tolist()
        assert stock_order(num_samples, seed, epoch).tolist() == expected
