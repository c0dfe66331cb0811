"""The samplers by their names in a run's settings."""

from collections.abc import Callable

from .base import PosteriorSampler
from .peers import BOTSSampler, DifficultyPoolSampler, GRESOSampler, MoPPSSampler, SECSampler

_PEERS = (MoPPSSampler, BOTSSampler, SECSampler, DifficultyPoolSampler, GRESOSampler)
PEER_SAMPLERS: dict[str, Callable[..., PosteriorSampler]] = {sampler.kind: sampler for sampler in _PEERS}

SAMPLERS = ("thompson", "greedy", "uniform", *PEER_SAMPLERS)
