"""The tiny model: Qwen2.5-VL's own classes with about 0.3 M parameters, fine-tuned until it solves some rows."""

import os
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

from .dataset import FORMAT_VERSION as DATA_VERSION
from .dataset import cached_directory, iter_scenes, progress_bar
from .processor import build_processor
from .scenes import CELL, Scene

IGNORED = -100  # the label of a position without loss in transformers


@dataclass(frozen=True)
class SFTSettings:
    """The recipe of the fine-tuning, which starts with level 1: else the model would learn nothing in this time.

    `first_mix` and `level_mix` are the shares of the three levels in the first `first_share` of the steps and in the
    rest. The few scenes of level 3 determine the number of impossible rows.
    """

    steps: int = 900
    batch_size: int = 16
    learning_rate: float = 2e-3
    patch_embed_factor: float = 0.1
    warmup_steps: int = 20
    first_share: float = 0.45
    first_mix: tuple[float, float, float] = (0.9, 0.1, 0.0)
    level_mix: tuple[float, float, float] = (0.35, 0.6, 0.05)


def prompt_messages(question: str) -> list[dict[str, Any]]:
    """Return the conversation as TRL prepares it, with the image before the text."""
    return [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}]


def encode_batch(scenes: list[Scene], processor: Qwen2_5_VLProcessor) -> dict[str, torch.Tensor]:
    """Return the model inputs of B scenes with their answers, and `labels`, (B, T), of the completions only."""
    prompts = [
        processor.apply_chat_template(prompt_messages(scene.question), add_generation_prompt=True) for scene in scenes
    ]
    answers = [f"<answer>{scene.answer}</answer>{processor.tokenizer.eos_token}" for scene in scenes]
    batch = processor(
        text=[prompt + answer for prompt, answer in zip(prompts, answers, strict=True)],
        images=[scene.image for scene in scenes],
        padding=True,
        return_tensors="pt",
    )
    labels = torch.full_like(batch["input_ids"], IGNORED)
    for row, answer in enumerate(answers):
        # With padding on the left every completion ends at the last column.
        length = len(processor.tokenizer(answer)["input_ids"])
        labels[row, -length:] = batch["input_ids"][row, -length:]
    return {**batch, "labels": labels}


def finetune(
    model: Qwen2_5_VLForConditionalGeneration,
    processor: Qwen2_5_VLProcessor,
    settings: SFTSettings = SFTSettings(),
    seed: int = 0,
    *,
    progress: bool = True,
) -> list[float]:
    """Train `model` in place on scenes of the train split; return the loss of every step, in nats a token.

    With one thread the result repeats bit for bit; on busy cores two took 2.8 s a step against 0.09 s (torch 2.15).
    """
    named = list(model.named_parameters())
    patch_embed = [parameter for name, parameter in named if ".patch_embed." in name]
    rest = [parameter for name, parameter in named if ".patch_embed." not in name]
    # A patch has 1176 strongly correlated inputs. A step of Adam moves their sum far, so its learning rate is smaller.
    optimizer = torch.optim.AdamW(
        [
            {"params": patch_embed, "lr": settings.learning_rate * settings.patch_embed_factor},
            {"params": rest, "lr": settings.learning_rate},
        ],
        betas=(0.9, 0.98),
        weight_decay=0.01,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / settings.warmup_steps, 1.05 - step / settings.steps)
    )
    turn = settings.first_share * settings.steps * settings.batch_size
    scenes = iter_scenes("sft", seed, lambda index: settings.first_mix if index < turn else settings.level_mix)
    losses = []
    model.train()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = settings.steps
        for _ in progress_bar(range(steps), steps, "teaching the tiny model", "step", shown=progress):
            batch = encode_batch(list(islice(scenes, settings.batch_size)), processor)
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    finally:
        torch.set_num_threads(threads)
    model.eval()
    return losses


INITIALIZER_RANGE = 0.08
"""The initial standard deviation. Qwen's 0.02 suits widths of thousands; at width 64 learning would be slow."""


def build_config(processor: Qwen2_5_VLProcessor) -> Qwen2_5_VLConfig:
    """Return the configuration with the token ids of `processor`."""
    tokenizer = processor.tokenizer
    text = {
        "vocab_size": len(tokenizer),
        **{"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "max_position_embeddings": 1024},
        "initializer_range": INITIALIZER_RANGE,
        # Two heads give head_dim 32; vLLM's CPU backend does not accept the 16 of four heads.
        **{"num_attention_heads": 2, "num_key_value_heads": 2},
        # Sections add up to head_dim / 2 = 16. With a theta of 1e6 the later ones would be constant over 40 tokens.
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [4, 6, 6]},
        **{"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id},
    }
    vision = {
        **{"depth": 2, "hidden_size": 48, "intermediate_size": 96, "num_heads": 2, "out_hidden_size": 64},
        **{"patch_size": CELL, "temporal_patch_size": 2, "spatial_merge_size": 2, "window_size": 112},
        **{"fullatt_block_indexes": [1], "initializer_range": INITIALIZER_RANGE},
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
    settings: SFTSettings = SFTSettings(),
    progress: bool = True,
) -> Path:
    """Return a directory with the fine-tuned tiny model and its processor; build it if it is missing.

    `cache_dir` is the parent of the directory, by default `$HF_HOME/trl_vade`. `settings` is the recipe of the
    fine-tuning. A negative seed, of weights and scenes, is a ValueError.
    """

    def build(directory: Path) -> None:
        processor = build_processor()
        model = build_model(processor, seed)
        finetune(model, processor, settings, seed, progress=progress)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)

    key = {"format": FORMAT_VERSION, "data": DATA_VERSION, "seed": seed, **asdict(settings)}
    return cached_directory("tiny-qwen2.5-vl", key, build, cache_dir)
