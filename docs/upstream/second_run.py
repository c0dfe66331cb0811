"""TRL 1.16.0: a run that ends inside a generation batch hands its completions to the next one.

`train()` resets neither `_step` nor `_buffered_inputs`. The second run, or the next trial of a search, trains on
completions of the first one's policy, and on other rows than a new trainer.

Expected:
    generation batches of the first run and of the second: [1, 1]

Printed:
    generation batches of the first run and of the second: [1, 0]
"""

import os

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "What is it?"}]}] * 8)
calls = []


def reward(completions, **kwargs):
    calls.append(len(completions))
    return [float(number % 2) for number in range(len(completions))]


args = GRPOConfig(
    "out",
    per_device_train_batch_size=2,
    num_generations=2,
    num_iterations=2,
    max_completion_length=4,
    max_steps=1,
    report_to="none",
    use_cpu=True,
    bf16=False,
)
trainer = GRPOTrainer(MODEL, reward, args, rows)
trainer.train()
first = len(calls)
trainer.train()
print("generation batches of the first run and of the second:", [first, len(calls) - first])
