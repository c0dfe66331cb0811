"""TRL 1.16.0, transformers 5.24.0: a row without an image beside rows with images ends the run.

TRL writes None for the images of a row without any, as its engines expect. The processors of transformers
expect an empty list. They refuse None before the training forward.

Expected:
    trained

Printed:
    TypeError: only a single or a list of entries is supported but got type=<class 'NoneType'>
"""

import os

from datasets import Dataset
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
prompt = [{"role": "user", "content": "What is it?"}]
rows = [{"prompt": prompt, "images": [Image.new("RGB", (56, 56))]}, {"prompt": prompt, "images": []}]
args = GRPOConfig(
    "out",
    per_device_train_batch_size=4,
    num_generations=2,
    max_completion_length=4,
    max_steps=1,
    report_to="none",
    use_cpu=True,
    bf16=False,
)


def reward(completions, **kwargs):
    return [float(number % 2) for number in range(len(completions))]


try:
    GRPOTrainer(MODEL, reward, args, Dataset.from_list(rows)).train()
    print("trained")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
