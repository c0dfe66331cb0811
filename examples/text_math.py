# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[report,rewards]"]
# ///
# Run: uv run examples/text_math.py   (one GPU; model and data are from the Hub)
"""Train a 0.5B text model on grade-school math, on one GPU.

With `--use_vllm` vLLM generates, from the extra `vllm`. `--sampler uniform` is the baseline, vanilla GRPO.
"""

import argparse

import torch
from datasets import load_dataset

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.rewards import accuracy_reward

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--dataset", default="openai/gsm8k", help="rows with the columns question and answer")
parser.add_argument("--sampler", default="thompson", choices=["thompson", "uniform"])
parser.add_argument("--use_vllm", action="store_true")
parser.add_argument("--output_dir", default="gsm8k-{sampler}")
parser.add_argument("--max_steps", type=int, default=600)
options = parser.parse_args()


def as_row(example):
    """Make the two columns that the training needs: a conversation, and the number after GSM8K's `####`."""
    question = f"{example['question']}\nThink step by step, and put the final number in \\boxed{{}}."
    return {
        "prompt": [{"role": "user", "content": question}],
        "answer": example["answer"].split("####")[-1].strip(),
    }


train = load_dataset(options.dataset, "main", split="train").map(as_row, remove_columns="question")
test = load_dataset(options.dataset, "main", split="test[:20%]").map(as_row, remove_columns="question")

args = VADEGRPOConfig(
    output_dir=options.output_dir.format(sampler=options.sampler),
    vade_sampler=options.sampler,
    # A generation batch is 8 x 64 = 512 completions: 128 rows, 4 completions each. GSM8K has 7,473 rows, so 300
    # batches are 5.1 epochs. On the first visit of a row the sampler knows its words alone.
    num_generations=4,
    per_device_train_batch_size=8,  # sets the memory of a backward pass; the product with the next line is the batch
    gradient_accumulation_steps=64,
    num_iterations=2,  # passes over a batch, so 600 steps are 300 batches
    vade_replay=0 if options.sampler == "uniform" else 4,  # dead groups leave room for what taught in the last four
    max_steps=options.max_steps,
    max_completion_length=512,  # a cut answer has no \boxed{} and scores 0: watch completions/clipped_ratio
    # The rate, the temperature of 1.0 and beta 0.0 (no reference model in memory) are TRL's defaults.
    learning_rate=1e-6,
    use_vllm=options.use_vllm,
    vllm_mode="colocate",
    # The training reward falls when harder rows are chosen. The score on held-out rows tells whether the model learns.
    eval_strategy="steps",
    eval_on_start=True,
    eval_steps=50,
    per_device_eval_batch_size=64,
    num_generations_eval=2,
    save_steps=50,  # each checkpoint holds the posterior: trainer.train(resume_from_checkpoint="auto") goes on
    save_total_limit=2,
    logging_steps=1,
    bf16=torch.cuda.is_available(),
)
# The reward compares numbers as numbers, and expressions by math-verify. As the only reward it also decides success
# for the sampler: `vade_success_reward` stays unset.
trainer = VADEGRPOTrainer(options.model, accuracy_reward, args, train, test)
trainer.train()
trainer.save_model()
