"""A short supervised fine-tuning, after which the tiny model solves some rows, so that GRPO can choose among them."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor

from .dataset import iter_scenes, progress_bar
from .scenes import Scene

IGNORED = -100  # the label of a position without loss in transformers


@dataclass(frozen=True)
class SFTSettings:
    """The recipe of the fine-tuning, which starts with level 1.

    With all twelve families from the start the model would learn none in this time. `first_mix` and `level_mix` are
    the shares of the three levels in the first `first_share` of the steps and in the rest. The few scenes of level 3
    determine the number of impossible rows.
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

    One thread makes the result repeat bit for bit on one machine. It is also faster on busy cores: two threads took
    2.8 s a step against 0.09 s (torch 2.15, OpenMP).
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
