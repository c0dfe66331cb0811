"""transformers 5.24.0: a callback with a state ends a run whose checkpoint did not know it.

A run is resumed with a callback more than it was saved with. The next checkpoint looks for the state of this
callback among those that were loaded.

Expected:
    saved: True

Printed:
    KeyError: 'Counter'
"""

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return {"loss": ((self.weight - x) ** 2).mean()}


class Counter(TrainerCallback, ExportableState):
    steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1

    def state(self):
        return {"args": {}, "attributes": {"steps": self.steps}}


def train(callbacks, steps, checkpoint=None):
    args = TrainingArguments("out", max_steps=steps, save_steps=2, report_to="none", use_cpu=True)
    data = [{"x": torch.ones(1)}] * 64
    Trainer(Model(), args, train_dataset=data, callbacks=callbacks).train(resume_from_checkpoint=checkpoint)


train([], 2)
try:
    train([Counter()], 4, "out/checkpoint-2")
    print("saved:", "Counter" in TrainerState.load_from_json("out/checkpoint-4/trainer_state.json").stateful_callbacks)
except KeyError as error:
    print(f"KeyError: {error}")
