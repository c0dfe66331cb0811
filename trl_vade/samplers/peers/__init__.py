"""Other published ways to choose prompts, behind the same five verbs, to be compared with; numpy is all they import.

    from trl_vade.samplers.peers import MoPPSSampler

Each is the rule of its paper or code and no more: what the rest of its system does (filters after the rollout, batch
sizes, losses) is left out. The class docstrings name the source and every difference to it.
"""

from .bots import BOTSSampler
from .difficulty_pools import DifficultyPoolSampler
from .greso import GRESOSampler
from .mopps import MoPPSSampler
from .sec import SECSampler

__all__ = ["BOTSSampler", "DifficultyPoolSampler", "GRESOSampler", "MoPPSSampler", "SECSampler"]
