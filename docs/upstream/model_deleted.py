"""lmms-eval 0.7.3: an evaluation deletes the model that it was given.

`clean` deletes every module of the model. Several evaluations of one model load it again each time.

Expected:
    the model is there for the next evaluation: True

Printed:
    the model is there for the next evaluation: False
"""

import torch
from lmms_eval.api.model import lmms


class Mine(lmms):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1, 1)

    loglikelihood = generate_until = generate_until_multi_round = lambda self, requests: []


mine = Mine()
mine.clean()  # after an evaluation
print("the model is there for the next evaluation:", hasattr(mine, "net"))
