"""Variance-aware dynamic prompt selection (VADE, arXiv 2511.18902) for the GRPO trainer of Hugging Face TRL.

Every public name is loaded on first use (PEP 562): `import trl_vade` and the numpy core load neither torch nor TRL.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

try:
    __version__ = metadata.version("trl-vade")
except metadata.PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

_EXPORTS = {
    "BetaPosterior": "posterior",
    "Draw": "prompt_sampler",
    "PromptSampler": "prompt_sampler",
    "ThompsonSampler": "samplers",
    "UniformSampler": "samplers",
    "VADEEvalCallback": "eval_callback",
    "VADEGRPOConfig": "config",
    "VADEGRPOTrainer": "trainer",
    "effective_gradient_ratio": "information",
    "expected_effective_ratio": "information",
    "information_gain": "information",
    "load_posterior": "posterior_source",
    "load_snapshot": "snapshot",
    "save_snapshot": "snapshot",
}

if TYPE_CHECKING:
    from .config import VADEGRPOConfig as VADEGRPOConfig
    from .eval_callback import VADEEvalCallback as VADEEvalCallback
    from .information import effective_gradient_ratio as effective_gradient_ratio
    from .information import expected_effective_ratio as expected_effective_ratio
    from .information import information_gain as information_gain
    from .posterior import BetaPosterior as BetaPosterior
    from .posterior_source import load_posterior as load_posterior
    from .prompt_sampler import Draw as Draw
    from .prompt_sampler import PromptSampler as PromptSampler
    from .samplers import ThompsonSampler as ThompsonSampler
    from .samplers import UniformSampler as UniformSampler
    from .snapshot import load_snapshot as load_snapshot
    from .snapshot import save_snapshot as save_snapshot
    from .trainer import VADEGRPOTrainer as VADEGRPOTrainer

__all__ = [*_EXPORTS, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_EXPORTS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
