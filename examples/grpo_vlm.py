# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[report,rewards]", "peft"]
# ///
# Run: uv run examples/grpo_vlm.py   (one GPU; model and data are from the Hub)
"""Train Qwen3-VL on geometry questions with pictures: TRL's GRPO example for images, two lines changed.

    -from trl import GRPOConfig, GRPOTrainer
    +from trl_vade import VADEGRPOConfig as GRPOConfig
    +from trl_vade import VADEGRPOTrainer as GRPOTrainer

The data set has the columns `images`, `problem` and `answer`, as hiyouga/geometry3k has. LoRA keeps the memory small,
and trackio shows the run in a browser (`trackio show`). `--sampler uniform` is the baseline.
"""

import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig

from trl_vade import VADEGRPOConfig as GRPOConfig
from trl_vade import VADEGRPOTrainer as GRPOTrainer
from trl_vade.rewards import accuracy_reward

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="Qwen/Qwen3-VL-2B-Instruct")
parser.add_argument("--dataset", default="hiyouga/geometry3k")
parser.add_argument("--sampler", default="thompson")
parser.add_argument("--output_dir", default="geometry-vade")
parser.add_argument("--max_steps", type=int, default=120)
parser.add_argument("--use_vllm", action="store_true", help="generate with vLLM (pip install 'trl-vade[vllm]')")
options = parser.parse_args()


def as_prompt(row):
    """Make a conversation. TRL puts the pictures in front of the question; the marks of the file are left out."""
    question = row["problem"].replace("<image>", "").strip()
    return {"prompt": [{"role": "user", "content": f"{question}\nPut the final answer into \\boxed{{}}."}]}


rows = load_dataset(options.dataset, split="train")
rows = rows.map(as_prompt, remove_columns=["problem"])

args = GRPOConfig(
    output_dir=options.output_dir,
    max_steps=options.max_steps,
    learning_rate=1e-5,
    num_generations=4,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=32,  # a generation batch of 64 rows
    num_iterations=2,  # passes over it
    vade_replay=0 if options.sampler == "uniform" else 4,  # also over what taught in the last four
    max_completion_length=512,
    logging_steps=1,
    save_steps=20,
    bf16=torch.cuda.is_available(),
    use_cpu=not torch.cuda.is_available(),
    use_vllm=options.use_vllm,
    vllm_mode="colocate",
    vade_sampler=options.sampler,
    log_completions=True,
    report_to="trackio",
    project="geometry-vade",
)
trainer = GRPOTrainer(
    options.model,
    accuracy_reward,
    args,
    train_dataset=rows,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
)
trainer.train(resume_from_checkpoint="auto")
trainer.save_model()
