"""`evaluate.load(trl_vade.rewards.metric_path("vade_format"))`: the share of completions in the right form."""

import datasets
import evaluate

from trl_vade.rewards.functions import format_reward

DESCRIPTION = """\
Share of completions that are `<think>...</think><answer>...</answer>`: the reward function that trains.
"""
INPUTS = """\
Args:
    predictions: completions, whole texts.
Returns:
    format: share in that form.
"""


class VADEFormat(evaluate.Metric):
    """The mean of `trl_vade.rewards.format_reward`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": datasets.Value("string")}),
        )

    def _compute(self, predictions: list[str]) -> dict[str, float]:
        scores = format_reward(predictions)
        return {"format": sum(scores) / len(scores)}
