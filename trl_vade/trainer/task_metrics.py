"""Metrics of the task at evaluations, by a function of the user: a reward at 1 may hide that accuracy falls.

TRL 1.16 has no `compute_metrics` for GRPO. This one has the shape of huggingface/trl#7144, so that it can go when that
is in a release.
"""

from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import EvalPrediction

from trl_vade.processes import on_main_process
from trl_vade.rewards.functions import text_of

Compute = Callable[[EvalPrediction], dict[str, float]]


class TaskMetrics:
    """The completions and rewards of an evaluation, and the metrics that `compute` makes of them."""

    def __init__(self, compute: Compute | None) -> None:
        self._compute, self._texts, self._rewards = compute, [], []

    def note(self, completions: list[Any], rewards: torch.Tensor) -> None:
        """Take the completions of this process and the rewards of all, (N, F). All processes must take part."""
        if self._compute is not None:
            self._texts += gather_object([text_of(completion) for completion in completions])
            self._rewards.append(rewards.cpu())

    def add_to(self, metrics: dict[str, list[float]]) -> None:
        """Add the metrics of the completions since the last call to those of the evaluation, without `eval_`."""
        if not self._texts:
            return
        given = EvalPrediction(predictions=self._texts, label_ids=torch.cat(self._rewards))
        self._texts, self._rewards = [], []
        for name, value in on_main_process(lambda: self._compute(given)).items():
            metrics[name.removeprefix("eval_")].append(float(value))
