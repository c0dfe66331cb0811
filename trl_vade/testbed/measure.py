"""The sampled pass rates of a model on each row, and their summary."""

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
from tqdm.auto import tqdm

from .rewards import exact_answer_reward
from .scenes import LEVELS, TASKS
from .sft import prompt_messages


@torch.no_grad()
def measure_pass_rates(
    model: Any,
    processor: Any,
    dataset: datasets.Dataset,
    num_generations: int = 8,
    *,
    temperature: float = 1.0,
    max_completion_length: int = 12,
    batch_size: int = 64,
    seed: int = 0,
    reward: Callable[..., list[float]] = exact_answer_reward,
    progress: bool = True,
) -> np.ndarray:
    """Sample `num_generations` completions of every row and return the mean reward of each row, shape (N,), in [0, 1].

    Args:
        model: a `Qwen2_5_VLForConditionalGeneration`, on any device. Its training mode is restored.
        processor: its processor, with padding on the left.
        dataset: rows with `prompt`, `images` and `answer`.
        num_generations: G, the completions of each row, at least 1.
        temperature: the sampling temperature, above 0.
        max_completion_length: the longest completion, in tokens.
        batch_size: the rows generated together, each with `num_generations` completions.
        seed: the seed of sampling. torch's global generator is restored.
        reward: a reward function of `completions` and `answer`.
        progress: whether to show a progress bar.
    """
    was_training = model.training
    model.eval()
    rates = np.empty(len(dataset))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        starts = range(0, len(dataset), batch_size)
        for start in tqdm(starts, desc="measuring pass rates", unit="batch", disable=not progress):
            rows = dataset[start : start + batch_size]
            texts = _generate(model, processor, rows, num_generations, temperature, max_completion_length)
            answers = [answer for answer in rows["answer"] for _ in range(num_generations)]
            rewards = np.array(reward(completions=texts, answer=answers)).reshape(-1, num_generations)
            rates[start : start + batch_size] = rewards.mean(axis=1)
    model.train(was_training)
    return rates


def _generate(
    model: Any, processor: Any, rows: dict[str, list[Any]], num_generations: int, temperature: float, max_tokens: int
) -> list[str]:
    texts = [
        processor.apply_chat_template(prompt_messages(prompt[-1]["content"]), add_generation_prompt=True)
        for prompt in rows["prompt"]
    ]
    images = [image for row in rows["images"] for image in row]
    inputs = processor(text=texts, images=images, padding=True, return_tensors="pt").to(model.device)
    tokens = model.generate(
        **inputs,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        max_new_tokens=max_tokens,
        num_return_sequences=num_generations,
        # A sampled image token would need an image.
        suppress_tokens=[processor.image_token_id, processor.video_token_id],
    )
    texts = processor.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return list(texts)


def pass_rate_report(pass_rates: np.ndarray, dataset: datasets.Dataset) -> str:
    """Return the histogram, the mean, the share of mixed groups and the table of tasks and levels as text."""
    tasks, levels = np.array(dataset["task"]), np.array(dataset["level"])
    lines = [f"{len(pass_rates)} rows, mean pass rate {pass_rates.mean():.3f}"]
    counts, edges = np.histogram(pass_rates, bins=np.arange(11) / 10)
    for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        share = count / len(pass_rates)
        lines.append(f"  {left:.1f}-{right:.1f}  {share:6.1%}  {'#' * round(50 * share)}")
    right, wrong = np.mean(pass_rates == 1), np.mean(pass_rates == 0)
    lines.append(f"groups: all right {right:.1%}, all wrong {wrong:.1%}, mixed {1 - right - wrong:.1%}")
    lines.append("  " + "task".ljust(8) + "".join(f"level {level}  " for level in LEVELS))
    for task in TASKS:
        cells = (pass_rates[(tasks == task) & (levels == level)] for level in LEVELS)
        means = (cell.mean() if len(cell) else np.nan for cell in cells)
        lines.append("  " + task.ljust(8) + "".join(f"{mean:7.2f}  " for mean in means))
    return "\n".join(lines)
