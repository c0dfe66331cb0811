"""Variance-aware dynamic prompt selection (VADE, arXiv 2511.18902) for the GRPO trainer of Hugging Face TRL.

Public names are loaded on first use (PEP 562), so `import trl_vade` loads neither torch nor TRL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import *  # noqa: F403 - light, so not among those below
from .version import __version__

_SAMPLERS = ("BetaPosterior", "Draw", "PromptSampler", "ThompsonSampler", "UniformSampler")
_EXPORTS = dict.fromkeys((*_SAMPLERS, "information_gain", "load_snapshot", "save_snapshot"), "samplers") | {
    "VADEConsoleCallback": "trainer.console",
    "VADEGRPOConfig": "trainer.grpo_config",
    "VADEGRPOTrainer": "trainer.grpo_trainer",
    "VADEReportCallback": "trainer.report",
    "load_posterior": "hub.posteriors.repository",
}

if TYPE_CHECKING:
    from .hub.posteriors.repository import load_posterior as load_posterior
    from .samplers import BetaPosterior as BetaPosterior
    from .samplers import Draw as Draw
    from .samplers import PromptSampler as PromptSampler
    from .samplers import ThompsonSampler as ThompsonSampler
    from .samplers import UniformSampler as UniformSampler
    from .samplers import information_gain as information_gain
    from .samplers import load_snapshot as load_snapshot
    from .samplers import save_snapshot as save_snapshot
    from .trainer.console import VADEConsoleCallback as VADEConsoleCallback
    from .trainer.grpo_config import VADEGRPOConfig as VADEGRPOConfig
    from .trainer.grpo_trainer import VADEGRPOTrainer as VADEGRPOTrainer
    from .trainer.report import VADEReportCallback as VADEReportCallback

__all__ = [*_EXPORTS, *(name for name in vars(errors) if name.endswith("Error")), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
    except ImportError as error:
        raise errors.naming_library(error) from error


def __dir__() -> list[str]:
    return sorted(__all__)
