"""The samples file of a run: a line for each question, with the response and its score."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated

from ..benchmarks import Benchmark
from ..judge import names_no_answer

_Json = dict[str, Any]
LONGEST_ANSWER = 3  # words of an extracted answer that may be missing in the response: "12", "B", "3/11 of it"
FAILED_REQUEST = "[LMMS_EVAL_REQUEST_FAILED"
"""Prefix of the answer that lmms-eval's API backends invent after a request has failed (models/chat/openai.py)."""

_WORD = re.compile(r"[^\W\d_]{2,}")


def refusal(folder: Path, found: str, rule: str) -> EvaluationError:
    """Return the error of a run that is not valid, with the text `found` there and the broken `rule`."""
    return EvaluationError(
        f"The run {folder} is not valid: {found}; {rule}. Look into the newest file of the folder logs, and run the "
        "same command again: finished runs are kept."
    )


def parse(folder: Path, content: bytes, name: str) -> _Json:
    """Return the JSON object in `content`, of the file or line `name`."""
    try:
        parsed = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also for a cut character of several bytes
        raise refusal(
            folder, f"{name} is not complete JSON ({error})", "it may have been cut while written"
        ) from error
    if not isinstance(parsed, dict):
        raise refusal(folder, f"{name} holds {abbreviated(parsed)}", "it must hold a JSON object")
    return parsed


def read_samples(folder: Path, results_file: Path, benchmark: Benchmark, asked: int) -> list[_Json]:
    """Return the lines of the samples file, in the order of `doc_id`."""
    name = results_file.name.removesuffix("results.json") + f"samples_{benchmark.task}.jsonl"
    try:
        content = results_file.with_name(name).read_bytes()
    except FileNotFoundError as error:
        raise refusal(folder, f"{name} is missing", "it is written after the results file") from error
    if not content.endswith(b"\n"):
        raise refusal(folder, f"the last line of {name} has no end", "the file was cut while it was written")
    # Not `splitlines`: a response may hold U+2028 and other line ends, which this JSON does not escape.
    lines = content[:-1].split(b"\n")
    samples = [parse(folder, line, f"line {number} of {name}") for number, line in enumerate(lines, 1)]
    ids = [sample.get("doc_id") for sample in samples]
    if not all(type(number) is int for number in ids) or len(set(ids)) < len(ids) or len(ids) != asked:
        raise refusal(
            folder,
            f"{name} has {len(ids)} lines about {len(set(map(str, ids)))} questions (doc_id), but the results file "
            f"counts {asked} questions",
            "there must be one line for each question",
        )
    return sorted(samples, key=lambda sample: sample["doc_id"])


def response_of(folder: Path, sample: _Json) -> str:
    """Return the model's text. `resps` is missing if it equals `filtered_resps`; both may be nested lists."""
    text = _first(sample.get("resps", sample.get("filtered_resps")))
    if not isinstance(text, str):
        raise refusal(folder, f"question {sample['doc_id']} has no response", "each must have one, of text")
    if text.startswith(FAILED_REQUEST):
        raise refusal(
            folder,
            f"the request for question {sample['doc_id']} failed: {abbreviated(text)}",
            "every question needs an answer of the model; lmms-eval would score this text as wrong",
        )
    return text


def scores_of(folder: Path, samples: Sequence[_Json], benchmark: Benchmark) -> dict[int, float]:
    """Return by `doc_id` the scores of the questions, 0 to 1, without questions that do not count."""
    scores: dict[int, float] = {}
    for sample in samples:
        score = sample.get(benchmark.metric, ...)
        if score is None:
            continue
        if type(score) not in (int, float) or not 0 <= score <= 1:
            found = f"the score of question {sample['doc_id']} ({benchmark.metric}) is {abbreviated(score)}"
            raise refusal(folder, found, "it must be from 0 to 1")
        scores[sample["doc_id"]] = float(score)
    if not scores:
        raise refusal(folder, f"none of its {len(samples)} questions has a score", "at least one must have one")
    return scores


def foreign_extractions(samples: Sequence[_Json]) -> list[str]:
    """Return the texts that a judge gave instead of an extracted answer, such as that it is overloaded or refuses.

    These have more than three words and are neither in the response nor one of the choices, nor do they say that the
    response has no answer. A number, a letter, a list or an expression is never among them.
    """
    found = []
    for sample in samples:
        extraction = str(sample.get("extraction") or "")
        text, choices = _plain(extraction), sample.get("choices")
        choices = [_plain(str(choice)) for choice in choices] if isinstance(choices, list) else []
        response = _plain(str(_first(sample.get("filtered_resps"))))
        long = len(_WORD.findall(text)) > LONGEST_ANSWER
        if long and text not in response and text not in choices and not names_no_answer(extraction):
            found.append(extraction)
    return found


def _first(value: Any) -> Any:
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _plain(text: str) -> str:
    words = re.sub(r"[^\w.+-]+", " ", text.lower()).split()
    return " ".join(filter(None, (word.rstrip(".") for word in words)))
