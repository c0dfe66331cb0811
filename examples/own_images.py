# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[report]", "peft"]
# ///
# Run: uv run examples/own_images.py --dataset receipts   (one GPU)
"""Train a vision-language model on a folder of your own images, with your own reward function.

The folder holds the images and `rows.jsonl`, a line for each question. Several questions may share an image:

    {"image": "0001.jpg", "question": "What is the total?", "answer": "12.50"}
"""

import argparse
import re
from pathlib import Path

import torch
from datasets import Image, List, load_dataset
from peft import LoraConfig
from transformers import AutoProcessor

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="Qwen/Qwen2.5-VL-3B-Instruct")
parser.add_argument("--dataset", type=Path, required=True, help="the folder with rows.jsonl and the images")
parser.add_argument("--output_dir", default="receipts-vade")
parser.add_argument("--max_steps", type=int, default=400)
options = parser.parse_args()


def amounts(text):
    """Find the numbers of a text; a comma separates thousands."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def right_amount(completions, answer, **columns):
    """Score 1.0 for the right amount, 0.0 for a wrong or missing one, None where the answer names several.

    A rule cannot tell which one is meant. None leaves the completion out of its group and out of the posterior.
    """
    rewards = []
    for completion, reference in zip(completions, answer, strict=True):
        found = set(amounts(completion[0]["content"]))
        rewards.append(None if len(found) > 1 else float(found == set(amounts(reference))))
    return rewards


def as_row(example):
    """Make a conversation and a list of image files. TRL puts the images in front of the question."""
    prompt = [{"role": "user", "content": f"{example['question']} Answer with the amount alone."}]
    return {"prompt": prompt, "images": [str(options.dataset / example["image"])]}


rows = load_dataset("json", data_files=str(options.dataset / "rows.jsonl"), split="train")
# A row without a readable label can never be scored. Its rollouts would be wasted, so it is dropped here.
rows = rows.filter(lambda example: len(amounts(example["answer"])) == 1)
rows = rows.map(as_row, remove_columns=["image", "question"])
rows = rows.cast_column("images", List(Image()))  # files are opened when their row is chosen

args = VADEGRPOConfig(
    output_dir=options.output_dir,
    max_steps=options.max_steps,
    num_generations=4,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=64,  # 4 x 64 / 4 = 64 rows a generation batch
    num_iterations=2,  # passes over it
    vade_replay=4,  # also over what taught in the last four
    max_completion_length=32,
    learning_rate=1e-5,  # LoRA takes a larger rate than TRL's default of 1e-6
    logging_steps=1,
    bf16=torch.cuda.is_available(),
)
lora = LoraConfig(target_modules="all-linear")  # gradients and optimizer states of the adapter only
# Qwen2.5-VL makes a token of 28 x 28 pixels. Larger images are scaled down to 1,024 tokens.
pixels = {"shortest_edge": 4 * 28 * 28, "longest_edge": 1024 * 28 * 28}
processor = AutoProcessor.from_pretrained(options.model, size=pixels)
trainer = VADEGRPOTrainer(options.model, right_amount, args, rows, processing_class=processor, peft_config=lora)
trainer.train()
trainer.save_model()
