"""What counts as a sampler, and what all of this package can do: a look at the next draw."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.benchmarks.oracle import OracleSampler
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.base import PromptSampler
from trl_vade.samplers.counts import LARGE
from trl_vade.samplers.peers import (
    BOTSSampler,
    DifficultyPoolSampler,
    GRESOSampler,
    MoPPSSampler,
    SECSampler,
)
from trl_vade.samplers.snapshot import state_digest

VERBS = ("draw", "observe", "state_dict", "load_state_dict", "metrics")


@pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])
def test_both_samplers_keep_the_protocol(kind):
    assert isinstance(kind(3), PromptSampler)


@pytest.mark.parametrize("missing", VERBS)
def test_a_sampler_that_lacks_a_verb_is_none(missing):
    verbs = {verb: lambda self, *arguments: None for verb in VERBS}
    assert isinstance(type("Whole", (), verbs)(), PromptSampler)
    assert not isinstance(type("Partial", (), {v: f for v, f in verbs.items() if v != missing})(), PromptSampler)


# ------------------------------------------------------------------------------------------ a look at the next draw


def labels(num_samples):
    return [f"kind {i % 3}" for i in range(num_samples)]


SAMPLERS = {
    "thompson": ThompsonSampler,
    "the default": partial(ThompsonSampler, signal_aware_decay=True, cooldown=3),
    "learned prior, strata, uniform share": lambda n: ThompsonSampler(
        n, prior="learned", strata=labels(n), uniform_share=0.3
    ),
    "greedy": partial(ThompsonSampler, greedy=True),
    "uniform": UniformSampler,
    "mopps": partial(MoPPSSampler, pool_factor=2),
    "bots": BOTSSampler,
    "sec": lambda n: SECSampler(n, task=labels(n)),
    "difficulty pools": DifficultyPoolSampler,
    "greso": GRESOSampler,
    "oracle": lambda n: OracleSampler(n, num_generations=8, pass_rate=np.arange(n) % 4 / 4),
}


def bits(draw):
    arrays = (draw.sample_index, draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean)
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
@given(num_samples=st.integers(3, 20), data=st.data())
def test_a_look_at_the_next_draw_gives_it_and_changes_nothing(make, num_samples, data):
    """State and draws are those of a twin that never looks ahead, epochs that end in between included."""
    looks, never_looks = make(num_samples), make(num_samples)
    for _ in range(data.draw(st.integers(1, 8))):
        k = data.draw(st.integers(1, num_samples))
        for size in data.draw(st.lists(st.integers(1, num_samples), max_size=2)):
            looks.peek(size)
        seen = looks.peek(k)
        assert state_digest(looks) == state_digest(never_looks)
        drawn, theirs = looks.draw(k), never_looks.draw(k)
        assert bits(seen) == bits(drawn) == bits(theirs)
        trials = np.full(k, 8)
        successes = data.draw(st.lists(st.integers(0, 8), min_size=k, max_size=k))
        looks.observe(drawn.sample_index, successes, trials)
        looks.peek(k)
        never_looks.observe(drawn.sample_index, successes, trials)
        assert state_digest(looks) == state_digest(never_looks)


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_a_state_saved_after_a_look_goes_on_as_one_that_was_saved_before(make):
    sampler, other = make(9), make(9)
    sampler.observe(sampler.draw(4).sample_index, [0, 8, 3, 8], [8] * 4)
    sampler.peek(4)
    other.load_state_dict(sampler.state_dict())
    assert bits(other.draw(4)) == bits(sampler.draw(4))


def test_a_look_at_a_draw_from_a_huge_pool_changes_nothing():
    sampler = ThompsonSampler(LARGE + 9)
    seen = sampler.peek(16)
    assert bits(seen) == bits(sampler.peek(16)) == bits(sampler.draw(16))


def test_a_look_that_is_refused_changes_nothing_either():
    sampler = UniformSampler(5)
    before = state_digest(sampler)
    with pytest.raises(ValueError, match="k is 6"):
        sampler.peek(6)
    assert state_digest(sampler) == before
