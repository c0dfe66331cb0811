"""The tiny model: Qwen2.5-VL's own classes with about 0.3 M random parameters, fine-tuned, as a cached directory."""

import os
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

from .cache import cached_directory
from .dataset import FORMAT_VERSION as DATA_VERSION
from .processor import build_processor
from .scenes import CELL
from .sft import SFTSettings, finetune

INITIALIZER_RANGE = 0.08
"""The initial standard deviation. Qwen's 0.02 suits widths of thousands; at width 64 learning would be slow."""


def build_config(processor: Qwen2_5_VLProcessor) -> Qwen2_5_VLConfig:
    """Return the configuration with the token ids of `processor`."""
    tokenizer = processor.tokenizer
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        # Two heads give head_dim 32; vLLM's CPU backend does not accept the 16 of four heads.
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": INITIALIZER_RANGE,
        # The sections of time, height and width add up to head_dim / 2 = 16. High frequencies come first. With the
        # default theta of 1e6 the later sections would be almost constant over 40 tokens.
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 6, 6]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "depth": 2,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": CELL,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1],
        "initializer_range": INITIALIZER_RANGE,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=processor.image_token_id,
        video_token_id=processor.video_token_id,
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        tie_word_embeddings=True,
        dtype="float32",
    )


def build_model(processor: Qwen2_5_VLProcessor, seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """Return a new float32 model on the CPU; torch's global generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(build_config(processor))
    tokenizer = processor.tokenizer
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


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
