"""Samplers with other published rules, for comparison: five examples of a sampler of one's own.

Each sampler is the selection rule of its paper or code. Filters after the rollout, batch sizes and losses are left
out. The class docstrings name the source and every difference.
"""

from .bots import BOTSSampler
from .difficulty_pools import DifficultyPoolSampler
from .greso import GRESOSampler
from .mopps import MoPPSSampler
from .sec import SECSampler

__all__ = ["BOTSSampler", "DifficultyPoolSampler", "GRESOSampler", "MoPPSSampler", "SECSampler"]
