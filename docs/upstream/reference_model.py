"""TRL 1.16.0: a synced reference model is lost when a run is resumed.

With `sync_ref_model=True` the reference model follows the policy. It is in no checkpoint. A resumed run is
pulled to the base model, without a message.

Expected:
    the reference model is that of the checkpoint: True

Printed:
    the reference model is that of the checkpoint: False
"""

import os

from datasets import Dataset
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
        beta=0.1,
        sync_ref_model=True,
        ref_model_sync_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    return GRPOTrainer(MODEL, reward, args, rows)


def head(trainer):
    return trainer.accelerator.unwrap_model(trainer.ref_model).lm_head.weight.float().sum().item()


first = trainer_of(2)
first.train()
second = trainer_of(2)
second.train(resume_from_checkpoint="out/checkpoint-2")
print("the reference model is that of the checkpoint:", head(first) == head(second))
