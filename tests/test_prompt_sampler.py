"""What counts as a sampler."""

import pytest

from trl_vade.prompt_sampler import PromptSampler
from trl_vade.samplers import ThompsonSampler, UniformSampler

VERBS = ("draw", "observe", "state_dict", "load_state_dict", "metrics")


@pytest.mark.parametrize("kind", [ThompsonSampler, UniformSampler])
def test_both_samplers_keep_the_protocol(kind):
    assert isinstance(kind(3), PromptSampler)


@pytest.mark.parametrize("missing", VERBS)
def test_a_sampler_that_lacks_a_verb_is_none(missing):
    verbs = {verb: lambda self, *arguments: None for verb in VERBS}
    assert isinstance(type("Whole", (), verbs)(), PromptSampler)
    assert not isinstance(type("Partial", (), {v: f for v, f in verbs.items() if v != missing})(), PromptSampler)
