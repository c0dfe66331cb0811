"""The tiny model as a directory that every `from_pretrained` takes, built once and cached."""

import os
from dataclasses import asdict
from pathlib import Path

from .cache import cached_directory
from .dataset import FORMAT_VERSION as DATA_VERSION
from .model import build_model
from .processor import build_processor
from .sft import SFTSettings, finetune

FORMAT_VERSION = 1
"""Raised whenever the same settings would give another model; part of the cache key."""


def load_testbed_model(
    seed: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    settings: SFTSettings | None = None,
    progress: bool = True,
) -> Path:
    """Return a directory with a fine-tuned `Qwen2_5_VLForConditionalGeneration` and its `Qwen2_5_VLProcessor`.

    Args:
        seed: Of the initial weights and of the scenes shown; 0 or more.
        cache_dir: Parent of the cached directory; `$HF_HOME/trl_vade` by default.
        settings: The recipe; by default the one that the README's figures were made with.
        progress: Show a progress bar while the model is built.

    Raises:
        ValueError: a negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be at least 0, as numpy's SeedSequence asks")
    recipe = settings or SFTSettings()

    def build(directory: Path) -> None:
        processor = build_processor()
        model = build_model(processor, seed)
        finetune(model, processor, recipe, seed, progress=progress)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)

    key = {"format": FORMAT_VERSION, "data": DATA_VERSION, "seed": seed, **asdict(recipe)}
    return cached_directory("tiny-qwen2.5-vl", key, build, cache_dir)
