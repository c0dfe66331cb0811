"""The samples file of a run: one line a question, with what the model said and how it was scored."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated

from ..benchmarks import Benchmark

_Json = dict[str, Any]
LONGEST_ANSWER = 3
"""Words of an extracted answer that need not be in the response: "12", "B", "3/11 of it"."""
FAILED_REQUEST = "[LMMS_EVAL_REQUEST_FAILED"
"""How the answer begins that lmms-eval's API backends make up after a request's last failure (models/chat/openai.py).
"""

_WORD = re.compile(r"[^\W\d_]{2,}")
_LAST_WORDS = re.compile(r"\nAnswer [^\n]*\Z")


def refusal(folder: Path, found: str, rule: str) -> EvaluationError:
    """The error that the run in `folder` does not count: what was `found` there, and the `rule` that it breaks."""
    return EvaluationError(
        f"The run {folder} does not count: {found}; {rule}. lmms-eval 0.7.3 exits with 0 whatever fails, so its files "
        "are all there is to go by. Look into the newest file of the folder logs, and run the same command again: "
        "finished runs are kept."
    )


def parse(folder: Path, content: bytes, name: str) -> _Json:
    """The JSON object in `content`, of the file or line `name`."""
    try:
        parsed = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also where a character of several bytes was cut
        raise refusal(folder, f"{name} is no whole JSON ({error})", "it may have been cut while written") from error
    if not isinstance(parsed, dict):
        raise refusal(folder, f"{name} holds {abbreviated(parsed)}", "it must hold a JSON object")
    return parsed


def read_samples(folder: Path, results_file: Path, benchmark: Benchmark, asked: int) -> list[_Json]:
    """The lines of the samples file, in the order of `doc_id`."""
    name = results_file.name.removesuffix("results.json") + f"samples_{benchmark.task}.jsonl"
    try:
        content = results_file.with_name(name).read_bytes()
    except FileNotFoundError as error:
        raise refusal(folder, f"{name} is not there", "it is written after the results file") from error
    if not content.endswith(b"\n"):
        raise refusal(folder, f"the last line of {name} has no end", "the file was cut while written")
    # Not `splitlines`: a response may hold U+2028 and other ends of a line, which this JSON does not escape.
    lines = content[:-1].split(b"\n")
    samples = [parse(folder, line, f"line {number} of {name}") for number, line in enumerate(lines, 1)]
    ids = [sample.get("doc_id") for sample in samples]
    if not all(type(number) is int for number in ids) or len(set(ids)) < len(ids) or len(ids) != asked:
        raise refusal(
            folder,
            f"{name} has {len(ids)} lines about {len(set(map(str, ids)))} questions (doc_id), and by the results file "
            f"{asked} were asked",
            "there must be one line for each question",
        )
    return sorted(samples, key=lambda sample: sample["doc_id"])


def response_of(folder: Path, sample: _Json) -> str:
    """The model's text. `resps` is left out where it is the same as `filtered_resps`; either may be in lists."""
    text = _first(sample.get("resps", sample.get("filtered_resps")))
    if not isinstance(text, str):
        raise refusal(folder, f"question {sample['doc_id']} has no response", "each must have one, of text")
    if text.startswith(FAILED_REQUEST):
        raise refusal(
            folder,
            f"the request for question {sample['doc_id']} failed: {abbreviated(text)}",
            "every question must be answered by the model, and lmms-eval scores such a text as a wrong answer",
        )
    return text


def scores_of(folder: Path, samples: Sequence[_Json], benchmark: Benchmark) -> dict[int, float]:
    """The questions' scores, 0 to 1, by `doc_id`; a question without one does not count."""
    scores: dict[int, float] = {}
    for sample in samples:
        try:
            score = benchmark.question_score(sample)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            score, problem = math.nan, repr(error)
        else:
            problem = abbreviated(score)
        if score is None:
            continue
        if not 0 <= score <= 1:
            place = ".".join(map(str, (benchmark.metric, *benchmark.score)))
            found = f"the score of question {sample['doc_id']} ({place}) is {problem}"
            raise refusal(folder, found, "it must be from 0 to 1")
        scores[sample["doc_id"]] = score
    if not scores:
        raise refusal(folder, f"none of its {len(samples)} questions has a score", "there must be one at least")
    return scores


def question_digests(samples: Sequence[_Json]) -> dict[int, str]:
    """16 hexadecimal digits of each question's text and target, by `doc_id`. Its pictures are not in the samples file.

    The text is `input`: in lmms-eval 0.7.3 that of the task, before this package adds an instruction or a system
    prompt. Its last line, if that is "Answer ...", does not count: with an instruction it is another one, or none
    (`tasks.THOUGHTFUL`). `doc_hash` tells nothing: it is the hash of null, for every question of every data set.
    """
    digests = {}
    for sample in samples:
        text = sample.get("input")
        text = _LAST_WORDS.sub("", text) if isinstance(text, str) else text
        question = json.dumps([text, sample.get("target")]).encode()
        digests[sample["doc_id"]] = hashlib.sha256(question).hexdigest()[:16]
    return digests


def foreign_extractions(samples: Sequence[_Json], benchmark: Benchmark) -> list[str]:
    """What a judge extracted that is no answer: more than three words that are neither in the response nor one of the
    choices, so never a number, a letter, a list or an expression. A judge may say that it is overloaded, or refuse.
    """
    found = []
    for sample in samples:
        scored = sample[benchmark.metric]
        extraction = str(scored.get("extraction") or "")
        text = _plain(extraction)
        choices = scored.get("choices")
        choices = [_plain(str(choice)) for choice in choices] if isinstance(choices, list) else []
        response = _plain(str(_first(sample.get("filtered_resps"))))
        if len(_WORD.findall(text)) > LONGEST_ANSWER and text not in response and text not in choices:
            found.append(extraction)
    return found


def _first(value: Any) -> Any:
    while isinstance(value, list) and value:
        value = value[0]
    return value


def _plain(text: str) -> str:
    words = re.sub(r"[^\w.+-]+", " ", text.lower()).split()
    return " ".join(filter(None, (word.rstrip(".") for word in words)))
