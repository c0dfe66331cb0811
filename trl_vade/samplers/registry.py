"""The samplers by their names in a run's settings."""

from collections.abc import Callable

from .base import PosteriorSampler
from .peers import BOTSSampler, DifficultyPoolSampler, GRESOSampler, MoPPSSampler, SECSampler

PEER_SAMPLERS: dict[str, Callable[..., PosteriorSampler]] = {
    "mopps": MoPPSSampler,
    "bots": BOTSSampler,
    "sec": SECSampler,
    "difficulty_pools": DifficultyPoolSampler,
    "greso": GRESOSampler,
}

SAMPLERS = ("thompson", "greedy", "uniform", *PEER_SAMPLERS)
