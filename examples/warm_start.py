# /// script
# requires-python = ">=3.11"
# dependencies = ["trl-vade[report,rewards]"]
# ///
# Run: uv run examples/warm_start.py --dataset you/questions --posterior somebody/run-posterior   (one GPU)
"""Start from the posterior of somebody's run, and publish your own.

Both runs need the same rows, recognised by a column `id` or by their content. The reward needs the extra `rewards`.
With `--publish_to you/run` the run pushes its model, and its posterior to you/run-posterior; log in first
(`hf auth login`).
"""

import argparse

import numpy as np
import torch
from datasets import load_dataset

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer, load_posterior
from trl_vade.rewards import accuracy_reward

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--dataset", required=True, help="rows with the columns prompt and answer, best with an id")
parser.add_argument("--posterior", required=True, help="user/repo, user/repo@step-000100, or the folder of a run")
parser.add_argument("--publish_to", help="your model repository on the Hub, user/name; left out: none")
parser.add_argument("--output_dir", default="warm-start")
parser.add_argument("--max_steps", type=int, default=200)
options = parser.parse_args()

# 1. Look at it before. The table has a line for each row that the other run has scored.
table = load_posterior(options.posterior)
facts = table.metadata
print(f"{len(table)} of {facts.get('num_samples')} rows scored, at optimiser step {facts.get('global_step')}")
print(f"model {facts.get('base_model')}, reward {facts.get('success_reward')}")
mastered, impossible = np.mean(table.pass_rate > 0.9), np.mean(table.pass_rate < 0.1)
print(f"expected pass rate above 0.9: {mastered:.0%} of the rows, below 0.1: {impossible:.0%}")
print("hardest rows:")
for row in np.argsort(table.pass_rate)[:5]:
    print(f"  {table.sample_id[row]}  pass rate {table.pass_rate[row]:.2f} after {table.visits[row]} visits")

# 2. Train from it.
args = VADEGRPOConfig(
    output_dir=options.output_dir,
    max_steps=options.max_steps,
    vade_posterior_init=options.posterior,
    # The counts are evidence about another policy, so 0.2 of them are taken over (the default). If model, data and
    # recipe are the same, 1.0 uses all of them.
    vade_warm_start_discount=0.2,
    # Each save pushes the model, and its posterior to `<publish_to>-posterior`. A repository is for one run.
    push_to_hub=options.publish_to is not None,
    hub_model_id=options.publish_to,
    save_steps=50,
    num_generations=4,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=32,  # 8 x 32 / 4 = 64 rows a generation batch
    logging_steps=1,
    bf16=torch.cuda.is_available(),
)
trainer = VADEGRPOTrainer(options.model, accuracy_reward, args, load_dataset(options.dataset, split="train"))
trainer.train()  # the log says how many rows were found, and how many start from the prior
trainer.save_model()
