# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[report,rewards]"]
# ///
# Run: uv run examples/two_lines.py   (one GPU; model and data are from the Hub)
"""Turn a TRL script into a VADE script: TRL's GRPO quick start, with two lines changed.

    -from trl import GRPOConfig, GRPOTrainer
    +from trl_vade import VADEGRPOConfig as GRPOConfig
    +from trl_vade import VADEGRPOTrainer as GRPOTrainer

Everything below the imports is a TRL script. It runs unchanged with either import.
"""

import argparse

import torch
from datasets import load_dataset
from trl.rewards import accuracy_reward

from trl_vade import VADEGRPOConfig as GRPOConfig
from trl_vade import VADEGRPOTrainer as GRPOTrainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--dataset", default="trl-lib/DeepMath-103K", help="rows with the columns prompt and solution")
parser.add_argument("--split", default="train[:4096]", help="few rows, so that each comes several times")
parser.add_argument("--output_dir", default="deepmath-vade")
parser.add_argument("--max_steps", type=int, default=300)
options = parser.parse_args()

trainer = GRPOTrainer(
    model=options.model,
    reward_funcs=accuracy_reward,
    args=GRPOConfig(
        output_dir=options.output_dir,
        max_steps=options.max_steps,
        # By TRL's defaults a generation batch is 8 completions: ONE row. A sampler that chooses one row at a time sees
        # little of the data. Accumulation makes the batch 8 x 32 = 256 completions, that is 64 rows of 4. The memory
        # of a backward pass stays that of 8 completions.
        num_generations=4,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=32,
        logging_steps=1,
        bf16=torch.cuda.is_available(),
    ),
    train_dataset=load_dataset(options.dataset, split=options.split),
)
trainer.train()  # leaves vade_report.png, a picture of the run, in output_dir
trainer.save_model()
