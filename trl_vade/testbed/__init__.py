"""The testbed: a rendered visual-reasoning data set, and a tiny, real Qwen2.5-VL that solves part of it.

Both are built locally from a seed. Names are loaded on first use (PEP 562), so the import loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import build_dataset as build_dataset
    from .dataset import load_testbed_dataset as load_testbed_dataset
    from .model import load_testbed_model as load_testbed_model
    from .rewards import exact_answer_reward as exact_answer_reward

_MODULE_OF = {"load_testbed_model": "model", "exact_answer_reward": "rewards"}
_MODULE_OF |= dict.fromkeys(("build_dataset", "load_testbed_dataset"), "dataset")

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
