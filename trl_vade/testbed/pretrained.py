"""The tiny model as a cached directory for `from_pretrained`."""

import os
from dataclasses import asdict
from pathlib import Path

from .cache import cached_directory
from .dataset import FORMAT_VERSION as DATA_VERSION
from .model import build_model
from .processor import build_processor
from .sft import SFTSettings, finetune

FORMAT_VERSION = 1
"""The version of the model, part of the cache key. Raise it when the same settings give another model."""


def load_testbed_model(
    seed: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    settings: SFTSettings = SFTSettings(),  # noqa: B008
    progress: bool = True,
) -> Path:
    """Return a directory with the fine-tuned tiny model and its processor; build it if it is missing.

    `cache_dir` is the parent of the directory, by default `$HF_HOME/trl_vade`. `settings` is the recipe of the
    fine-tuning; all published figures use the default. A negative seed, of weights and scenes, is a ValueError.
    """

    def build(directory: Path) -> None:
        processor = build_processor()
        model = build_model(processor, seed)
        finetune(model, processor, settings, seed, progress=progress)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)

    key = {"format": FORMAT_VERSION, "data": DATA_VERSION, "seed": seed, **asdict(settings)}
    return cached_directory("tiny-qwen2.5-vl", key, build, cache_dir)
