"""Build the testbed and print the pass rates of its model: `python -m trl_vade.testbed`."""

from typing import Any

import datasets
import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoModelForImageTextToText, AutoProcessor

from . import exact_answer_reward, load_testbed_dataset, load_testbed_model
from .scenes import LEVELS, TASKS
from .sft import prompt_messages

BATCH_SIZE = 64  # the rows generated together, each with all its completions


def main() -> None:
    """Build or load the data set and the model, then print the pass rates of the validation rows."""
    rows = load_testbed_dataset()["validation"]
    directory = load_testbed_model()
    print(f"model in {directory}")
    model = AutoModelForImageTextToText.from_pretrained(directory)
    print(report(pass_rates(model, AutoProcessor.from_pretrained(directory), rows), rows))


def pass_rates(model: Any, processor: Any, rows: datasets.Dataset, num_generations: int = 8) -> np.ndarray:
    """Sample completions of every row at temperature 1; return the share of right ones, shape (N,), in [0, 1]."""
    torch.manual_seed(0)
    rates = []
    for start in tqdm(range(0, len(rows), BATCH_SIZE), desc="measuring pass rates", unit="batch"):
        batch = rows[start : start + BATCH_SIZE]
        messages = [prompt_messages(prompt[-1]["content"]) for prompt in batch["prompt"]]
        texts = [processor.apply_chat_template(message, add_generation_prompt=True) for message in messages]
        images = [image for row in batch["images"] for image in row]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt").to(model.device)
        tokens = model.generate(
            **inputs,
            **{"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": 12},
            num_return_sequences=num_generations,
            # A sampled image token would need an image.
            suppress_tokens=[processor.image_token_id, processor.video_token_id],
        )
        said = processor.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        answers = [answer for answer in batch["answer"] for _ in range(num_generations)]
        rates += exact_answer_reward(said, answers)
    return np.reshape(rates, (-1, num_generations)).mean(axis=1)


def report(rates: np.ndarray, rows: datasets.Dataset) -> str:
    """Return the histogram, the mean, the share of mixed groups and the table of tasks and levels as text."""
    tasks, levels = np.array(rows["task"]), np.array(rows["level"])
    lines = [f"{len(rates)} rows, mean pass rate {rates.mean():.3f}"]
    counts, edges = np.histogram(rates, bins=np.arange(11) / 10)
    for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        share = count / len(rates)
        lines.append(f"  {left:.1f}-{right:.1f}  {share:6.1%}  {'#' * round(50 * share)}")
    right, wrong = np.mean(rates == 1), np.mean(rates == 0)
    lines.append(f"groups: all right {right:.1%}, all wrong {wrong:.1%}, mixed {1 - right - wrong:.1%}")
    lines.append("  " + "task".ljust(8) + "".join(f"level {level}  " for level in LEVELS))
    for task in TASKS:
        means = (rates[(tasks == task) & (levels == level)].mean() for level in LEVELS)
        lines.append("  " + task.ljust(8) + "".join(f"{mean:7.2f}  " for mean in means))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
