"""The sampled pass rates of a model on each row, and their summary."""

from typing import Any

import datasets
import numpy as np
import torch
from tqdm.auto import tqdm

from .rewards import exact_answer_reward
from .scenes import LEVELS, TASKS
from .sft import prompt_messages

BATCH_SIZE = 64  # the rows generated together, each with all its completions


@torch.no_grad()
def measure_pass_rates(
    model: Any, processor: Any, dataset: datasets.Dataset, num_generations: int = 8, *, seed: int = 0
) -> np.ndarray:
    """Sample completions of every row at temperature 1; return the share of right ones, shape (N,), in [0, 1].

    `processor` pads on the left. The rows have `prompt`, `images` and `answer`. The model's training mode and torch's
    global generator are restored.
    """
    was_training = model.training
    model.eval()
    rates = np.empty(len(dataset))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for start in tqdm(range(0, len(dataset), BATCH_SIZE), desc="measuring pass rates", unit="batch"):
            rows = dataset[start : start + BATCH_SIZE]
            texts = _generate(model, processor, rows, num_generations)
            answers = [answer for answer in rows["answer"] for _ in range(num_generations)]
            rewards = np.array(exact_answer_reward(completions=texts, answer=answers)).reshape(-1, num_generations)
            rates[start : start + BATCH_SIZE] = rewards.mean(axis=1)
    model.train(was_training)
    return rates


def _generate(model: Any, processor: Any, rows: dict[str, list[Any]], num_generations: int) -> list[str]:
    messages = [prompt_messages(prompt[-1]["content"]) for prompt in rows["prompt"]]
    texts = [processor.apply_chat_template(message, add_generation_prompt=True) for message in messages]
    images = [image for row in rows["images"] for image in row]
    inputs = processor(text=texts, images=images, padding=True, return_tensors="pt").to(model.device)
    tokens = model.generate(
        **inputs,
        **{"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": 12},
        num_return_sequences=num_generations,
        # A sampled image token would need an image.
        suppress_tokens=[processor.image_token_id, processor.video_token_id],
    )
    return list(processor.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


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
