"""The samplers that choose rows, and the posterior over pass rates. The room imports numpy and safetensors only."""

from .base import Draw as Draw
from .base import PromptSampler as PromptSampler
from .information import information_gain as information_gain
from .posterior import BetaPosterior as BetaPosterior
from .snapshot import load_snapshot as load_snapshot
from .snapshot import save_snapshot as save_snapshot
from .thompson import ThompsonSampler as ThompsonSampler
from .uniform import UniformSampler as UniformSampler
