"""transformers 5.24.0: a push is skipped while another one is running.

The Hub then lacks checkpoints that the run has saved. Nothing is logged, also not at the end.

Expected:
    pushes that were skipped without a word: 0

Printed:
    pushes that were skipped without a word: 2
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


class Uploading:
    """A push that has not ended, as a large model's takes minutes."""

    def is_done(self):
        return False


class Counted(Trainer):
    skipped = 0

    def _push_from_checkpoint(self, checkpoint_folder):
        before = self.push_in_progress
        super()._push_from_checkpoint(checkpoint_folder)
        self.skipped += self.push_in_progress is before


args = TrainingArguments("out", max_steps=4, save_steps=2, report_to="none", use_cpu=True)
trainer = Counted(Model(), args, train_dataset=[{"x": torch.ones(1)}] * 64)
args.push_to_hub, trainer.push_in_progress = True, Uploading()
trainer._finish_current_push = lambda: None
try:
    trainer.train()
finally:
    print("pushes that were skipped without a word:", trainer.skipped)
