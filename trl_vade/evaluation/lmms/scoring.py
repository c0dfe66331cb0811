"""What the tasks in `eval/tasks/` call: lmms-eval's own scoring with the answer out of its tags, and our own metrics.

lmms-eval 0.7.3 never strips `<answer>` tags: its `relaxed_correctness("<answer>42</answer>", "42")` is False. Here the
answer is what training takes it to be (`answers.tagged_answer`); a response without tags goes on as it is. lmms-eval
is imported when a task scores: this module is found by a YAML file, and importing it must cost nothing.
"""

import multiprocessing
import threading
from collections.abc import Sequence
from typing import Any

from trl_vade.rewards.answers import tagged_answer
from trl_vade.rewards.functions import accuracy_reward, metric_path
from trl_vade.testbed.rewards import exact_answer_reward

Row = dict[str, Any]


def chartqa(row: Row, results: Sequence[str]) -> Row:
    """ChartQA: relaxed accuracy."""
    from lmms_eval.tasks.chartqa.utils import chartqa_process_results

    return chartqa_process_results(row, _answers(results))


def scienceqa(row: Row, results: Sequence[str]) -> Row:
    """ScienceQA: the letter."""
    from lmms_eval.tasks.scienceqa.utils import sqa_process_results

    return sqa_process_results(row, _answers(results))


def mathvista(row: Row, results: Sequence[str]) -> Row:
    """MathVista: a judge extracts the answer, which is then compared."""
    from lmms_eval.tasks.mathvista.utils import mathvista_process_results

    scored = mathvista_process_results(row, _answers(results))
    if not str(scored["llm_as_judge_eval"]["extraction"] or "").strip():
        # lmms-eval 0.7.3 takes the choice that is nearest to it by edit distance: the shortest, which may be right.
        scored["llm_as_judge_eval"]["true_false"] = False
    return scored


def mathverse(row: Row, results: Sequence[str]) -> Row:
    """MathVerse: a judge compares."""
    from lmms_eval.tasks.mathverse.utils import mathverse_process_results

    return mathverse_process_results(row, _answers(results))


def mathvision(row: Row, results: Sequence[str]) -> Row:
    """MathVision: a judge compares."""
    from lmms_eval.tasks.mathvision.utils import mathvision_gpt_eval_process_results

    return mathvision_gpt_eval_process_results(row, _answers(results))


def mathvision_rules(row: Row, results: Sequence[str]) -> Row:
    """MathVision by lmms-eval's rules, in a process that can be ended: lmms-eval 0.7.3 hands what the model wrote to
    Python's `eval`, where 10^{10^{10}} never comes to an end. Such an answer is wrong.
    """
    answers = _answers(results)
    question = {"answer": row["answer"], "options": list(row["options"])}
    with _RULES_LOCK:
        scored = _by_rules(question, answers)
    return scored or {"mathvision_standard_eval": {"response": answers, "scores": [False] * len(answers)}}


RULES_SECONDS = 10.0
"""That the rules may take over one answer; they need milliseconds."""
_RULES_LOCK = threading.Lock()
_RULES_WORKERS: list[Any] = []


def _by_rules(question: Row, answers: Sequence[str]) -> Row | None:
    """What lmms-eval says; None: nothing in time, and its process was ended."""
    if not _RULES_WORKERS:
        worker = multiprocessing.get_context("spawn").Pool(1)
        worker.apply(_rules, ({"answer": "1", "options": []}, ["1"]))  # ready, before the time runs
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
    """The row's prompt as lmms-eval takes it; its images come before the text of the first user message (TRL)."""
    images = [{"type": "image", "url": image} for image in row_images(row)]
    messages = []
    for message in row["prompt"]:
        content: list[Row] = [{"type": "text", "text": message["content"]}]
        if message["role"] == "user":
            content, images = [*images, *content], []
        messages.append({"role": message["role"], "content": content})
    return messages


def row_images(row: Row) -> list[Any]:
    """The row's images."""
    return [image.convert("RGB") for image in row.get("images") or []]


def row_text(row: Row) -> str:
    """The text of the row's last message, for lmms-eval's logs."""
    return row["prompt"][-1]["content"]


def testbed(row: Row, results: Sequence[str]) -> Row:
    """The testbed's reward."""
    return {"exact_answer": exact_answer_reward(list(results[:1]), [row["answer"]])[0]}


def mixture(row: Row, results: Sequence[str]) -> Row:
    """What the metrics of `eval/metrics/` need, and the question's verdict; None: its reference cannot be read."""
    reference = {
        "answer": row["answer"],
        "answer_type": row.get("answer_type") or "",
        "choices": list(row.get("choices") or []),
        "source": row.get("source") or "",
    }
    columns = {name: [value or None] for name, value in reference.items()}
    # Not "score": lmms-eval 0.7.3 takes a standard deviation over the values of that key, and dies of a None.
    verdict = accuracy_reward([results[0]], **columns)[0]
    accuracy = {"prediction": results[0], "reference": reference, "verdict": verdict}
    return {"vade_accuracy": accuracy, "vade_format": {"prediction": results[0]}}


def mean_accuracy(items: Sequence[Row]) -> float:
    """`vade_accuracy` over all rows, by the `evaluate` module."""
    predictions = [item["prediction"] for item in items]
    return _compute("vade_accuracy", predictions=predictions, references=[item["reference"] for item in items])[
        "accuracy"
    ]


def mean_format(items: Sequence[Row]) -> float:
    """`vade_format` over all rows, by the `evaluate` module."""
    return _compute("vade_format", predictions=[item["prediction"] for item in items])["format"]


def _compute(name: str, **columns: Any) -> dict[str, float]:
    import evaluate

    return evaluate.load(metric_path(name), keep_in_memory=True).compute(**columns)
