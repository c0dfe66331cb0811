"""Which rows next: what is known of their pass rates, and the samplers that draw by it. numpy only."""

from .base import Draw as Draw
from .base import PromptSampler as PromptSampler
from .posterior import BetaPosterior as BetaPosterior
from .thompson import ThompsonSampler as ThompsonSampler
from .uniform import UniformSampler as UniformSampler
