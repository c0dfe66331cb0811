"""`trainer.variants`: golden values of DIVA-GRPO, and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.variants import diva_advantages, posterior_difficulty, standardised

REWARDS = np.array([[[1, 0, 0, 0, 0], [1, 1, 1, 0, 1]], [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]], dtype=float)
DIFFICULTY = np.array([[5.0, 3.0], [9.0, 6.0]])
GOLDEN = {(0, 0): (3.3281, -1.4447), (0, 1): (1.4447, -3.3281), (1, 0): (None, -0.2796), (1, 1): (4.7677, -0.9402)}
close = {"abs": 1e-4}


def test_the_worked_batch():
    assert standardised(REWARDS, 2)[0, 0, :2] == pytest.approx([1.7889, -0.4472], **close)
    assert standardised(REWARDS, (1, 2))[1, 1, :2] == pytest.approx([-0.3162, 2.8460], **close)
    found = diva_advantages(REWARDS, DIFFICULTY)
    for (problem, variant), (right, wrong) in GOLDEN.items():
        for reward, advantage in zip(REWARDS[problem, variant], found[problem, variant], strict=True):
            assert advantage == pytest.approx(right if reward else wrong, **close)
    assert posterior_difficulty(np.array([1, 0.75, 0.5, 0.25, 0])).tolist() == [1, 3, 5, 7, 9]
    with refused(ConfigurationError, ["2", "vade_advantage"], ["reward_weights"]):
        diva_advantages(REWARDS * 2, DIFFICULTY)


def test_the_range_of_small_rewards_shrinks_their_advantages():
    rewards = np.array([[[0, 0, 0, 0, 0.1]]])
    local = standardised(rewards, 2)
    assert local[0, 0, [0, 4]] == pytest.approx([-0.4472, 1.7888], **close)
    once = np.ptp(rewards) * local
    assert once[0, 0, [0, 4]] == pytest.approx([-0.0447, 0.1789], **close)
    # The batch holds one variant, so local and global advantages are the same, and standardised already.
    assert diva_advantages(rewards, np.array([[5.0]])) == pytest.approx(2 * once, abs=1e-3)


def test_the_weights_by_difficulty():
    rewards = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    even = diva_advantages(rewards, np.array([[5.0, 5.0]])) / 2  # half of it is global
    for apart, grown, shrunk in [(1, 1.1052, 0.9048), (1.5, 1.1618, 0.8607), (4, 1.4918, 0.6703)]:
        uneven = diva_advantages(rewards, np.array([[5.0 + apart, 5.0 - apart]])) - even
        assert uneven / even == pytest.approx(np.array([[[grown, shrunk], [shrunk, grown]]]), abs=1e-4)


@given(arrays(np.float64, (2, 3, 4), elements=st.sampled_from([0.0, 0.25, 1.0])))
def test_of_two_completions_of_a_variant_the_better_has_the_larger_advantage(rewards):
    found = diva_advantages(rewards, np.full((2, 3), 5.0))
    for better, values in zip(rewards.reshape(6, 4), found.reshape(6, 4), strict=True):
        assert (np.sign(values[:, None] - values) == np.sign(better[:, None] - better)).all()
