"""What is logged beside TRL's: metrics of the task and of the rows trained on, and each picture of a table once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import EvalPrediction
from trl.trainer import grpo_trainer

from trl_vade.processes import on_main_process
from trl_vade.rewards.functions import text_of

Compute = Callable[[EvalPrediction], dict[str, float]]


class TaskMetrics:
    """The completions and rewards of an evaluation, and the metrics that `compute` makes of them.

    It is a function of the user: a reward at 1 may hide that accuracy falls. TRL 1.16 has no `compute_metrics` for
    GRPO. This one has the shape of huggingface/trl#7144, so that it can go when that is in a release.
    """

    def __init__(self, compute: Compute | None) -> None:
        self.compute, self._texts, self._rewards = compute, [], []

    def note(self, completions: list[Any], rewards: torch.Tensor) -> None:
        """Take the completions of this process and the rewards of all, (N, F). All processes must take part."""
        if self.compute is not None:
            self._texts += gather_object([text_of(completion) for completion in completions])
            self._rewards.append(rewards.cpu())

    def add_to(self, metrics: dict[str, list[float]]) -> None:
        """Add the metrics of the completions since the last call to those of the evaluation, without `eval_`."""
        if not self._texts:
            return
        given = EvalPrediction(predictions=self._texts, label_ids=torch.cat(self._rewards))
        self._texts, self._rewards = [], []
        for name, value in on_main_process(lambda: self.compute(given)).items():
            metrics[name.removeprefix("eval_")].append(float(value))


OF_RATIOS = ("cispo_clip_ratio", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")
OF_EXTREMES, OF_PHI = ("clip_ratio/low_min", "clip_ratio/high_max"), "vespo/phi_seq_mean"
OF_TRAINED_ROWS = ("entropy", "kl", *OF_RATIOS, *OF_EXTREMES, OF_PHI)  # TRL's (1.16) of a micro-batch


def of_trained_rows(
    metrics: Any, names: list[str], in_rows: bool, *, rows: int, tokens: int, trained: int, averaged: int
) -> None:
    """Correct the metrics that the loss of a micro-batch has just added to those of its trained rows alone.

    Without a trained row they are removed. TRL 1.16 adds 0 then, which looks like a collapse of the entropy.
    """
    for name in names:
        value = metrics[name].pop()
        if name == OF_PHI:  # 1 for a row that is not trained on
            value = (value * rows - (rows - trained)) / max(trained, 1)
        elif name not in OF_EXTREMES:  # 0 for such a row
            value *= rows / max(trained, 1) if name in OF_RATIOS and in_rows else averaged / max(tokens, 1)
        if tokens:
            metrics[name].append(value)
        elif not metrics[name]:
            del metrics[name]  # TRL would log None


@contextmanager
def pictures_once() -> Iterator[None]:
    """Make trackio write a picture once in the block, however many completions of a table have it.

    TRL 1.16 makes an `Image` of a picture for each completion (`GRPOTrainer.log`), and each becomes a file.
    """
    backend = getattr(grpo_trainer, "trackio", None)
    if backend is None:
        yield
        return
    kind, made = backend.Image, {}  # TRL's table keeps the pictures, so that no other gets an identity of these

    def make(picture: Any) -> Any:
        if id(picture) not in made:
            made[id(picture)] = kind(picture)
        return made[id(picture)]

    backend.Image = make
    try:
        yield
    finally:
        backend.Image = kind
