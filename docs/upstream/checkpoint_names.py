"""transformers 5.24.0: a resumed Qwen2.5-VL trains the base model.

`save_pretrained` writes the weights under their old names. The Trainer's resume loads them by their new names.
It finds few of them, warns, and goes on with the optimiser of the checkpoint.

Expected:
    weights that are those of the checkpoint: 69 of 69

Printed:
    weights that are those of the checkpoint: 30 of 69
"""

import os

from datasets import Dataset
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "What is it?"}]}] * 8)


def reward(completions, **kwargs):
    return [float(number % 2) for number in range(len(completions))]


def trainer_of(steps):
    args = GRPOConfig(
        "out",
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=4,
        max_steps=steps,
        save_steps=2,
        learning_rate=0.1,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    return GRPOTrainer(MODEL, reward, args, rows)


trainer_of(2).train()
resumed = trainer_of(2)
resumed.train(resume_from_checkpoint="out/checkpoint-2")
saved = AutoModelForImageTextToText.from_pretrained("out/checkpoint-2", dtype=resumed.model.dtype).state_dict()
here = resumed.model.state_dict()
print(
    "weights that are those of the checkpoint:",
    sum(here[name].equal(value) for name, value in saved.items()),
    "of",
    len(saved),
)
