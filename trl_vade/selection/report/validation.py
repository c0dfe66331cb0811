"""The validation scores of a run and their errors: one rule for its console, its report and its verdict."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

RUNTIME = re.compile(r"eval_(?:(.+)_)?runtime")
"""The metric by which an evaluation names its data set. TRL 1.16 names the scores of all of them alike."""


def data_set_of(entry: Mapping[str, Any]) -> str:
    """Return the name of the data set of a log entry, as in a dictionary `eval_dataset`; empty without a name."""
    return next((found[1] or "" for found in map(RUNTIME.fullmatch, entry) if found), "")


def validations(
    history: Sequence[Mapping[str, Any]],
    success_reward: str | None,
    answers: Mapping[str, int] | int | None,
    data_set: str | None = None,
) -> list[dict[str, Any]]:
    """Return `step`, `score` and `standard_error` of each evaluation of one data set.

    The score is the mean of `success_reward`, or of the total reward.

    Args:
        history: the Trainer's log history.
        success_reward: the name of the reward that says "right"; None is the total reward.
        answers: the number of answers, or the numbers by data set. None: the errors are not known, and are None.
        data_set: a name as in `data_set_of`; None is the first data set that was evaluated.
    """
    key = f"eval_rewards/{success_reward}/mean" if success_reward else "eval_reward"
    spread = key.replace("/mean", "/std") if success_reward else "eval_reward_std"
    scored = [entry for entry in history if entry.get(key) is not None and not math.isnan(entry[key])]
    name = data_set_of(scored[0]) if scored and data_set is None else data_set
    count = answers.get(name or "") if isinstance(answers, Mapping) else answers
    return [
        {
            "step": entry["step"],
            "score": entry[key],
            "standard_error": standard_error(entry[key], entry.get(spread), count),
        }
        for entry in scored
        if data_set_of(entry) == name
    ]


def standard_error(score: float, spread: float | None, answers: int | None) -> float | None:
    """Return the standard error of a mean over sampled answers to fixed questions; None if their number is not known.

    For scores between 0 and 1 it is at most too large: answers to one question differ less than answers to all. For
    others `spread`, TRL's mean of the standard deviations of the batches, is all there is. The error says nothing
    about other questions.
    """
    if not answers:
        return None
    of_ones = math.sqrt(score * (1 - score)) if 0 <= score <= 1 else 0.0
    return max(of_ones, spread or 0.0) / math.sqrt(answers)


def change_of(first: Mapping[str, Any], last: Mapping[str, Any]) -> tuple[str, str]:
    """Return the change of a score in words, and whether it is more than two standard errors of the difference."""
    change = last["score"] - first["score"]
    errors = [first["standard_error"], last["standard_error"]]
    points = f"{100 * change:+.1f} points" if _are_shares(first, last) else f"{change:+.3g}"
    if None in errors:
        return points, "its error is not known"
    return points, "within noise" if abs(change) <= 2 * math.hypot(*errors) else "more than noise"


def with_error(evaluation: Mapping[str, Any]) -> str:
    """Return a score with its standard error, where that is known; in per cent if it lies between 0 and 1."""
    score, error = evaluation["score"], evaluation["standard_error"]
    if not _are_shares(evaluation):
        return f"{score:.3g}" if error is None else f"{score:.3g} ±{error:.2g}"
    return f"{100 * score:.1f} %" if error is None else f"{100 * score:.1f} ±{100 * error:.1f} %"


def _are_shares(*evaluations: Mapping[str, Any]) -> bool:
    return all(0 <= evaluation["score"] <= 1 for evaluation in evaluations)
