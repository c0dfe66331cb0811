"""transformers 5.24.0: a finished run that is resumed takes one step more.

The run has ended inside an epoch. The resumed Trainer enters the epoch and looks at `max_steps` after a step.

Expected:
    max_steps=3, step after the resume: 3

Printed:
    max_steps=3, step after the resume: 4
"""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return {"loss": ((self.weight - x) ** 2).mean()}


def trainer():
    args = TrainingArguments(
        "out", max_steps=3, save_steps=3, per_device_train_batch_size=1, report_to="none", use_cpu=True
    )
    return Trainer(Model(), args, train_dataset=[{"x": torch.ones(1)}] * 8)


trainer().train()
resumed = trainer()
resumed.train(resume_from_checkpoint="out/checkpoint-3")
print("max_steps=3, step after the resume:", resumed.state.global_step)
