"""What counts as a sampler; the rest is in test_every_sampler.py."""

import pytest

from trl_vade.samplers.base import PromptSampler

VERBS = ("draw", "observe", "state_dict", "load_state_dict", "metrics")


@pytest.mark.parametrize("missing", VERBS)
def test_a_sampler_that_lacks_a_verb_is_none(missing):
    verbs = {verb: lambda self, *arguments: None for verb in VERBS}
    assert isinstance(type("Whole", (), verbs)(), PromptSampler)
    assert not isinstance(type("Partial", (), {v: f for v, f in verbs.items() if v != missing})(), PromptSampler)
