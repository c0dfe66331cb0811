"""Functions of the tasks in `eval/tasks/`: lmms-eval's scoring of the answer inside its tags, and the rewards.

Each gives under its metric the score of a question, 0 to 1. lmms-eval 0.7.3 does not strip `<answer>` tags. Here the
answer is extracted as in training (`answers.tagged_answer`); a response without tags is unchanged. lmms-eval is
imported only when a task scores, because YAML files load this module.
"""

import importlib
import re
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from trl_vade.rewards.answers import tagged_answer
from trl_vade.rewards.functions import accuracy_reward, format_reward
from trl_vade.testbed.rewards import exact_answer_reward

Row = dict[str, Any]


def _by_lmms_eval(task: str, function: str) -> Callable[[Row, Sequence[str]], Row]:
    """Return lmms-eval's scoring function of a task, applied to the answers inside their tags."""

    def score(row: Row, results: Sequence[str]) -> Row:
        module = importlib.import_module(f"lmms_eval.tasks.{task}.utils")
        return getattr(module, function)(row, [tagged_answer(text) for text in results])

    return score


chartqa = _by_lmms_eval("chartqa", "chartqa_process_results")  # relaxed accuracy
scienceqa = _by_lmms_eval("scienceqa", "sqa_process_results")  # the letter
mathverse = _by_lmms_eval("mathverse", "mathverse_process_results")  # by a judge
mathvision = _by_lmms_eval("mathvision", "mathvision_gpt_eval_process_results")  # by a judge
_mathvision_rules = _by_lmms_eval("mathvision", "mathvision_process_results")
_mathvista = _by_lmms_eval("mathvista", "mathvista_process_results")


def mathvision_rules(row: Row, results: Sequence[str]) -> Row:
    """Score MathVision by lmms-eval's rules, which take values from `corrections.value`."""
    scores = _mathvision_rules(row, results)["mathvision_standard_eval"]["scores"]
    return {"mathvision_standard_eval": float(scores[0])}


def mathvista(row: Row, results: Sequence[str]) -> Row:
    """Score MathVista: a judge extracts the answer, which is then compared.

    In the data set on the Hub `precision` is a float, with which lmms-eval 0.7.3 rounds no number: without the whole
    number here, all 40 questions whose answer is a float would be wrong.
    """
    if row["answer_type"] == "float":  # for others it may be None or NaN
        row = {**row, "precision": int(row["precision"])}
    scored = _mathvista(row, results)["llm_as_judge_eval"]
    extraction = _plain(str(scored["extraction"] or ""))
    texts = [_plain(results[0]), *(_plain(str(choice)) for choice in row["choices"] or ())]
    foreign = len(_WORD.findall(extraction)) > LONGEST and not any(extraction in text for text in texts)
    none = bool(_NONE.fullmatch(extraction)) or (foreign and bool(_ABSENT.match(extraction)))
    # lmms-eval 0.7.3 takes the nearest choice by edit distance, also to "None", and it may be right.
    found = extraction in texts[1:] or not none
    unreadable = scored["extraction"] if foreign and not none else ""
    return {"llm_as_judge_eval": float(found and scored["true_false"]), "unreadable": unreadable}


LONGEST = 3  # words of an extracted answer that may be missing in the response: "12", "B", "3/11 of it"
# A judge that finds no answer, as in a response that was cut, and says so.
_NONE = re.compile("|none|null|n a|no( final)? answer.*")
_ABSENT = re.compile(
    r"(?=.*\b(no|not|t|cannot|never|without|cut|incomplete|missing)\b)(?=.*\b(answer|value|conclusion|option|choice))"
)
_WORD = re.compile(r"[^\W\d_]{2,}")


def _plain(text: str) -> str:
    words = re.sub(r"[^\w.+-]+", " ", text.lower()).split()
    return " ".join(filter(None, (word.rstrip(".") for word in words)))


def row_messages(row: Row) -> list[Row]:
    """Return the row's prompt as messages; images come before the text of the first user message, as in TRL."""
    images = [{"type": "image", "url": image} for image in row_images(row)]
    messages = []
    for message in row["prompt"]:
        content: list[Row] = [{"type": "text", "text": message["content"]}]
        if message["role"] == "user":
            content, images = [*images, *content], []
        messages.append({"role": message["role"], "content": content})
    return messages


def row_images(row: Row) -> list[Any]:
    """Return the row's images."""
    return [image.convert("RGB") for image in row.get("images") or []]


def testbed(row: Row, results: Sequence[str]) -> Row:
    """Score the testbed by its reward."""
    return {"exact_answer": exact_answer_reward(list(results[:1]), [row["answer"]])[0]}


def mixture(row: Row, results: Sequence[str]) -> Row:
    """Score a row by the rewards that train; None if its reference cannot be read."""
    columns = {name: [row.get(name) or None] for name in ("answer", "answer_type", "choices", "source")}
    # Not "score": lmms-eval 0.7.3 computes a standard deviation over that key, and fails on None.
    return {"vade_accuracy": accuracy_reward(results[:1], **columns)[0], "vade_format": format_reward(results[:1])[0]}


def mean(scores: Sequence[float | None]) -> float | None:
    """Return the mean of the scores of questions that count; None if there is none."""
    counted = [score for score in scores if score is not None]
    return fmean(counted) if counted else None
