"""Body of `test_two_processes.py`, run by torch.distributed.run on two processes over gloo.

usage: two_processes.py MODEL_DIRECTORY OUTPUT_DIRECTORY SCENARIO [CHECKPOINT]

Every process writes what it saw to `rank-<n>.json` in the output directory. With CHECKPOINT (a step), the run goes on
from that checkpoint of the output directory.
"""

import json
import os
import sys

import datasets
import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from PIL import Image

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

model, output_dir, scenario, *checkpoint = sys.argv[1:]


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


def has_even_length(completions, **kwargs):
    return [float(len(text_of(completion)) % 2 == 0) for completion in completions]


def rows_with_images():
    """A third of the rows have an image: now and then all rows of a process are text, and the other's are not."""
    rows = []
    for i in range(12):
        image = Image.fromarray(np.full((56, 56, 3), 20 * (i % 10), dtype=np.uint8))
        images = [image] if i % 3 == 0 else []
        rows.append({"prompt": [{"role": "user", "content": f"What is {i}?"}], "images": images, "id": f"row-{i}"})
    return Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def rows_of_text():
    prompts = [[{"role": "user", "content": f"say a digit above {i % 10}"}] for i in range(13)]
    return Dataset.from_dict({"prompt": prompts, "id": [f"row-{i}" for i in range(13)]})


args = VADEGRPOConfig(
    output_dir=output_dir,
    per_device_train_batch_size=4,
    num_generations=4 if scenario != "straddling" else 8,
    max_completion_length=4,
    max_steps=6,
    num_iterations=2 if scenario == "iterations" else 1,
    vade_posterior_init="rollout" if scenario == "rollout" else "prior",
    vade_sampler="uniform" if scenario == "images" else "thompson",
    log_completions=scenario == "images",
    learning_rate=1e-2,
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    logging_steps=1,
    save_strategy="steps",
    save_steps=3,
    report_to="none",
    disable_tqdm=True,
)
trainer = VADEGRPOTrainer(model, has_even_length, args, rows_with_images() if scenario == "images" else rows_of_text())
shares = []
load = trainer.selection._load
trainer.selection._load = lambda index: shares.append([row["id"] for row in load(index)]) or load(index)
trainer.train(resume_from_checkpoint=f"{output_dir}/checkpoint-{checkpoint[0]}" if checkpoint else None)

rank = PartialState().process_index
posterior = trainer.selection.sampler.posterior
with open(f"{output_dir}/rank-{rank}.json", "w") as file:
    json.dump(
        {
            "shares": shares,
            "alpha": posterior.alpha.tolist(),
            "visits": posterior.visits.tolist(),
            "rollouts": trainer.selection.rollouts,
            "staleness": [e["vade/staleness"] for e in trainer.state.log_history if "vade/staleness" in e],
            "weights": [p.double().sum().item() for p in trainer.model.parameters()],
        },
        file,
    )
torch.distributed.destroy_process_group()
# Everything is written. torch 2.15 over gloo aborts now and then while the interpreter is torn down: a worker thread
# that still holds the last collective wants the GIL (pytorch/pytorch#179291, closed without a merge). So: no teardown.
os._exit(0)
