"""`evaluate.load(trl_vade.rewards.metric_path("vade_accuracy"))`: the share of right answers."""

import datasets
import evaluate

from trl_vade.rewards.functions import accuracy_reward, relaxed_accuracy_reward

DESCRIPTION = """\
Share of completions whose answer is right: the reward function that trains, over the same columns.
"""
INPUTS = """\
Args:
    predictions: completions, whole texts.
    references: a dictionary for each: `answer`, and `answer_type` (choice, number, text, expression; "" to have it
        inferred), `choices` ([] for none), `source` (numbers of "ChartQA" are right within 5 %; "" for none).
    relaxed: give all numbers the 5 %.
Returns:
    accuracy: right / scored; NaN where none is scored.
    scored, unreadable: predictions that counted, and those whose reference cannot be read, which did not.
"""


class VADEAccuracy(evaluate.Metric):
    """The mean of `trl_vade.rewards.accuracy_reward`."""

    def _info(self) -> evaluate.MetricInfo:
        references = {
            "answer": datasets.Value("string"),
            "answer_type": datasets.Value("string"),
            "choices": datasets.List(datasets.Value("string")),
            "source": datasets.Value("string"),
        }
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation="",
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": datasets.Value("string"), "references": references}),
        )

    def _compute(self, predictions: list[str], references: list[dict], relaxed: bool = False) -> dict[str, float]:
        reward = relaxed_accuracy_reward if relaxed else accuracy_reward
        columns = {name: [reference[name] or None for reference in references] for name in references[0]}
        scores = [score for score in reward(predictions, **columns) if score is not None]
        accuracy = sum(scores) / len(scores) if scores else float("nan")
        return {"accuracy": accuracy, "scored": len(scores), "unreadable": len(predictions) - len(scores)}
