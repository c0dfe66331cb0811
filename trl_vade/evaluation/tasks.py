"""The tasks of `eval/tasks/` for lmms-eval, and the functions that their files name.

A scoring function returns under its metric the score of a question, 0 to 1. lmms-eval 0.7.3 does not strip `<answer>`
tags. Here the answer is extracted as in training (`answers.tagged_answer`); a response without tags is unchanged.
lmms-eval itself is imported only when a task scores, because reading a task's file imports this module.
"""

import importlib
import importlib.util
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from trl_vade.files import packaged
from trl_vade.rewards.answers import tagged_answer
from trl_vade.rewards.functions import accuracy_reward, format_reward
from trl_vade.testbed.rewards import exact_answer_reward

from .benchmarks import Benchmark
from .settings import Evaluation

Row = dict[str, Any]


def _words(**words: str) -> dict[str, Any]:
    return {"lmms_eval_specific_kwargs": {"default": words}}


_LETTER = "Answer with the option's letter from the given choices."
_SCIENCEQA = _words(format="default", pre_prompt="", post_prompt=f"\n{_LETTER}")
_MATHS = _words(prompt_format="solution", mc_prompt=_LETTER, short_answer_prompt="Answer the question with a number.")
THOUGHTFUL = {
    "chartqa": _words(pre_prompt="", post_prompt=""),
    **dict.fromkeys(("scienceqa", "scienceqa_img"), _SCIENCEQA),
    **dict.fromkeys(("mathvision", "mathvision_rules"), _MATHS),
}
"""Words around a question that fit an instruction. lmms-eval's own ask for a single word (ChartQA), or for a letter
"directly"."""


@contextmanager
def task_folder(evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> Iterator[Path]:
    """Yield a folder with a task for each benchmark, for lmms-eval's `--include_path`; delete it after the block."""
    (package,) = importlib.util.find_spec("lmms_eval").submodule_search_locations  # type: ignore[union-attr, misc]
    with tempfile.TemporaryDirectory(prefix="vade-tasks-") as tasks:
        for benchmark in benchmarks:
            text = packaged(f"eval/tasks/{benchmark.task}.yaml").read_text(encoding="utf-8")
            changes = dict(THOUGHTFUL.get(benchmark.name, {}) if evaluation.instruction else {})
            if folder := testbed_rows() if benchmark.name == "testbed" else evaluation.data.get(benchmark.name):
                saved = {"load_from_disk": True} if (folder / "dataset_dict.json").is_file() else {"token": False}
                changes |= {"dataset_path": str(folder.resolve()), "dataset_name": None, "dataset_kwargs": saved}
            text = text.replace("include: lmms_eval", f"include: {package}/tasks")
            text += yaml.safe_dump(changes) if changes else ""  # of two equal keys the last one counts
            Path(tasks, f"{benchmark.task}.yaml").write_text(text, encoding="utf-8")
        yield Path(tasks)


def testbed_rows() -> Path:
    """Return the folder of the testbed's validation split, made if needed."""
    from trl_vade.testbed import load_testbed_dataset
    from trl_vade.testbed.dataset import FORMAT_VERSION, cached_directory

    def build(directory: Path) -> None:
        load_testbed_dataset()["validation"].to_parquet(directory / "validation-00000-of-00001.parquet")

    return cached_directory("testbed-validation", {"format": FORMAT_VERSION}, build)


def _scored(task: str, function: str, row: Row, results: Sequence[str]) -> Row:
    module = importlib.import_module(f"lmms_eval.tasks.{task}.utils")
    return getattr(module, function)(row, [tagged_answer(text) for text in results])


chartqa = partial(_scored, "chartqa", "chartqa_process_results")  # relaxed accuracy
scienceqa = partial(_scored, "scienceqa", "sqa_process_results")  # the letter
mathverse = partial(_scored, "mathverse", "mathverse_process_results")  # by a judge
mathvision = partial(_scored, "mathvision", "mathvision_gpt_eval_process_results")  # by a judge
_mathvision_rules = partial(_scored, "mathvision", "mathvision_process_results")
_mathvista = partial(_scored, "mathvista", "mathvista_process_results")


def mathvision_rules(row: Row, results: Sequence[str]) -> Row:
    """Score MathVision by lmms-eval's rules, which take values from `corrections.value`."""
    scores = _mathvision_rules(row, results)["mathvision_standard_eval"]["scores"]
    return {"mathvision_standard_eval": float(scores[0])}


def mathvista(row: Row, results: Sequence[str]) -> Row:
    """Score MathVista: a judge extracts the answer, which is then compared.

    The Hub's `precision` is a float, with which lmms-eval 0.7.3 rounds no number: 40 right answers would be wrong.
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
    """Return the row's prompt with its pictures as messages, as in training."""
    from transformers.image_utils import load_image

    from trl_vade.data.loading import messages_of

    def part_of(part: Row) -> Row:
        if part["type"] == "image":
            return {"type": "image", "url": load_image(part["image"])}
        return {"type": "text", "text": part["text"]}

    messages = [(message["role"], message.get("content") or []) for message in messages_of(row)]
    return [{"role": role, "content": [*map(part_of, parts)]} for role, parts in messages]


def row_images(row: Row) -> list[Any]:
    """Return the row's pictures."""
    parts = (part for message in row_messages(row) for part in message["content"])
    return [part["url"] for part in parts if part["type"] == "image"]


def testbed(row: Row, results: Sequence[str]) -> Row:
    """Score the testbed by its reward."""
    return {"exact_answer": exact_answer_reward(list(results[:1]), [row["answer"]])[0]}


def mixture(row: Row, results: Sequence[str]) -> Row:
    """Score a row by the rewards that train; None if its reference cannot be read."""
    columns = {name: [row.get(name)] for name in ("answer", "answer_type", "choices", "source")}
    # Not "score": lmms-eval 0.7.3 computes a standard deviation over that key, and fails on None.
    return {"vade_accuracy": accuracy_reward(results[:1], **columns)[0], "vade_format": format_reward(results[:1])[0]}


def mean(scores: Sequence[float | None]) -> float | None:
    """Return the mean of the scores of questions that count; None if there is none."""
    counted = [score for score in scores if score is not None]
    return fmean(counted) if counted else None
