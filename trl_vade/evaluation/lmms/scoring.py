"""Functions of the tasks in `eval/tasks/`: lmms-eval's scoring of the answer inside its tags, and our own metrics.

lmms-eval 0.7.3 does not strip `<answer>` tags: its `relaxed_correctness("<answer>42</answer>", "42")` is False. Here
the answer is extracted as in training (`answers.tagged_answer`); a response without tags is unchanged. lmms-eval is
imported only when a task scores, because YAML files load this module.
"""

import importlib
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from typing import Any

from trl_vade.rewards.answers import tagged_answer
from trl_vade.rewards.functions import accuracy_reward, metric_path
from trl_vade.testbed.rewards import exact_answer_reward

Row = dict[str, Any]


def _by_lmms_eval(task: str, function: str) -> Callable[[Row, Sequence[str]], Row]:
    """Return lmms-eval's scoring function of a task, applied to the answers inside their tags."""

    def score(row: Row, results: Sequence[str]) -> Row:
        return getattr(importlib.import_module(f"lmms_eval.tasks.{task}.utils"), function)(row, _answers(results))

    return score


chartqa = _by_lmms_eval("chartqa", "chartqa_process_results")  # relaxed accuracy
scienceqa = _by_lmms_eval("scienceqa", "sqa_process_results")  # the letter
mathverse = _by_lmms_eval("mathverse", "mathverse_process_results")  # by a judge
mathvision = _by_lmms_eval("mathvision", "mathvision_gpt_eval_process_results")  # by a judge


def mathvista(row: Row, results: Sequence[str]) -> Row:
    """Score MathVista: a judge extracts the answer, which is then compared."""
    scored = _by_lmms_eval("mathvista", "mathvista_process_results")(row, results)
    if not str(scored["llm_as_judge_eval"]["extraction"] or "").strip():
        # lmms-eval 0.7.3 takes the nearest choice by edit distance: the shortest one, which may be right.
        scored["llm_as_judge_eval"]["true_false"] = False
    return scored


def mathvision_rules(row: Row, results: Sequence[str]) -> Row:
    """Score MathVision by lmms-eval's rules, in a process that is ended after `RULES_SECONDS`.

    lmms-eval 0.7.3 passes the answer to Python's `eval`, where 10^{10^{10}} never ends. Such an answer is wrong.
    """
    answers = _answers(results)
    question = {"answer": row["answer"], "options": list(row["options"])}
    with _RULES_LOCK:
        scored = _by_rules(question, answers)
    return scored or {"mathvision_standard_eval": {"response": answers, "scores": [False] * len(answers)}}


RULES_SECONDS = 10.0  # seconds for one answer; the rules need milliseconds
_RULES_LOCK = threading.Lock()
_RULES_WORKERS: list[Any] = []


def _by_rules(question: Row, answers: Sequence[str]) -> Row | None:
    """Return lmms-eval's scores, or None after the time limit, when the process was ended."""
    if not _RULES_WORKERS:
        worker = multiprocessing.get_context("spawn").Pool(1)
        worker.apply(_rules, ({"answer": "1", "options": []}, ["1"]))  # ready before the time is counted
        _RULES_WORKERS.append(worker)
    try:
        return _RULES_WORKERS[0].apply_async(_rules, (question, answers)).get(RULES_SECONDS)
    except multiprocessing.TimeoutError:
        _RULES_WORKERS.pop().terminate()
        return None


def _rules(question: Row, answers: Sequence[str]) -> Row:
    from .runner import alias_latex2sympy

    alias_latex2sympy()
    from lmms_eval.tasks.mathvision.utils import mathvision_process_results

    return mathvision_process_results(question, answers)


def _answers(results: Sequence[str]) -> list[str]:
    return [tagged_answer(text) for text in results]


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


def row_text(row: Row) -> str:
    """Return the text of the row's last message, for lmms-eval's logs."""
    return row["prompt"][-1]["content"]


def testbed(row: Row, results: Sequence[str]) -> Row:
    """Score the testbed by its reward."""
    return {"exact_answer": exact_answer_reward(list(results[:1]), [row["answer"]])[0]}


def mixture(row: Row, results: Sequence[str]) -> Row:
    """Return the inputs of `eval/metrics/` and the verdict; None if the reference cannot be read."""
    reference = {
        "answer": row["answer"],
        "answer_type": row.get("answer_type") or "",
        "choices": list(row.get("choices") or []),
        "source": row.get("source") or "",
    }
    columns = {name: [value or None] for name, value in reference.items()}
    # Not "score": lmms-eval 0.7.3 computes a standard deviation over that key, and fails on None.
    verdict = accuracy_reward([results[0]], **columns)[0]
    accuracy = {"prediction": results[0], "reference": reference, "verdict": verdict}
    return {"vade_accuracy": accuracy, "vade_format": {"prediction": results[0]}}


def mean_accuracy(items: Sequence[Row]) -> float:
    """Compute `vade_accuracy` over all rows, with the library `evaluate`."""
    return _compute("vade_accuracy", items, references=[item["reference"] for item in items])["accuracy"]


def mean_format(items: Sequence[Row]) -> float:
    """Compute `vade_format` over all rows, with the library `evaluate`."""
    return _compute("vade_format", items)["format"]


def _compute(name: str, items: Sequence[Row], **columns: Any) -> dict[str, float]:
    import evaluate

    predictions = [item["prediction"] for item in items]
    return evaluate.load(metric_path(name), keep_in_memory=True).compute(predictions=predictions, **columns)
