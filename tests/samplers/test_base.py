"""What counts as a sampler, and a look at the next draw of a huge pool; the rest is in test_every_sampler.py."""

import pytest

from trl_vade.samplers import ThompsonSampler
from trl_vade.samplers.base import PromptSampler
from trl_vade.samplers.counts import LARGE

VERBS = ("draw", "observe", "state_dict", "load_state_dict", "metrics")


@pytest.mark.parametrize("missing", VERBS)
def test_a_sampler_that_lacks_a_verb_is_none(missing):
    verbs = {verb: lambda self, *arguments: None for verb in VERBS}
    assert isinstance(type("Whole", (), verbs)(), PromptSampler)
    assert not isinstance(type("Partial", (), {v: f for v, f in verbs.items() if v != missing})(), PromptSampler)


def test_a_look_at_a_draw_from_a_huge_pool_changes_nothing():
    sampler = ThompsonSampler(LARGE + 9)
    seen = sampler.peek(16)
    for draw in (sampler.peek(16), sampler.draw(16)):
        assert draw.sample_index.tobytes() == seen.sample_index.tobytes()
        assert draw.sampled_pass_rate.tobytes() == seen.sampled_pass_rate.tobytes()
