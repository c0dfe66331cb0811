"""A run, read from what lmms-eval 0.7.3 left in its folder `runs/<benchmark>-seed<seed>/`.

    <model>/<time>_results.json                         the aggregated metrics, written first
    <model>/<time>_samples_vade_<benchmark>.jsonl       a line a question, appended one by one
    judge.json                                          of a judged benchmark; written by this package's own process

lmms-eval 0.7.3 ends with exit status 0 whatever fails, logs a file that it cannot write as a warning, and scores an
answer that it never got as a wrong one. So a run counts only if its files are whole and agree with each other.
"""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from .benchmarks import Benchmark
from .checks import shown
from .errors import EvaluationError

UNREADABLE_SHARE = 0.01
"""Up to this share of the judge's answers may be no verdict. lmms-eval scores each of them as a wrong answer."""
FAILED_REQUEST = "[LMMS_EVAL_REQUEST_FAILED"
"""How the answer begins that lmms-eval's API backends make up after a request's last failure (models/chat/openai.py).
"""
# MathVerse's task writes `submissions/mathverse_testmini_results.json` below the same folder: no results file.
_RESULTS_NAME = re.compile(r"\d{8}_\d{6}_results\.json")
_Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One benchmark with one seed, read from its folder and found sound.

    Attributes:
        value: the metric as lmms-eval gives it; None: no answer was right (`Benchmark.none_is_zero`).
        score: the same in per cent.
        questions: how many have a score.
        unscored: how many have none, since their reference cannot be read; they do not count.
        unreadable_verdicts: of the judge; lmms-eval took them for "wrong".
        texts_digest: SHA-256 of the responses, in the order of `doc_id`.
        scores: of each question that has one, by `doc_id`, 0 to 1.
    """

    benchmark: Benchmark
    seed: int
    value: float | None
    score: float
    questions: int
    unscored: int
    results_file: Path
    unreadable_verdicts: int
    texts_digest: str
    scores: dict[int, float]


def run_folder(output: Path, benchmark: Benchmark, seed: int) -> Path:
    """Where the run of `benchmark` with `seed` is, in the output directory `output`."""
    return output / "runs" / f"{benchmark.name}-seed{seed}"


def finished_run(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run | None:
    """The run in `folder`, as `read_run` returns it; None: there is none that counts."""
    try:
        return read_run(folder, benchmark, seed, limit)
    except EvaluationError:
        return None


def read_run(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run:
    """The run in `folder`.

    Args:
        limit: of the questions, the first `limit` were to be asked; None: all.

    Raises:
        EvaluationError: it is not there, or not whole; its files contradict each other; it is of another seed or
            another limit; requests failed; too many of the judge's answers are no verdict.
        OSError: a file is there and cannot be read.
    """
    file = _results_file(folder)
    results = _parse(folder, file.read_bytes(), str(file.relative_to(folder)))
    value = _value(folder, results, benchmark)
    _check_seed(folder, results, seed)
    samples = _samples(folder, file, benchmark, _asked(folder, results, benchmark, limit))
    responses = [_response(folder, sample) for sample in samples]
    scores = _scores(folder, samples, benchmark)
    _check_agreement(folder, value, list(scores.values()), benchmark)
    return Run(
        benchmark=benchmark,
        seed=seed,
        value=value,
        score=0.0 if value is None else 100 * value / benchmark.scale,
        questions=len(scores),
        unscored=len(samples) - len(scores),
        results_file=file,
        unreadable_verdicts=_unreadable_verdicts(folder) if benchmark.judged else 0,
        texts_digest=hashlib.sha256(json.dumps(responses).encode()).hexdigest(),
        scores=scores,
    )


def _refusal(folder: Path, found: str, rule: str) -> EvaluationError:
    return EvaluationError(
        f"The run {folder} does not count: {found}; {rule}. lmms-eval 0.7.3 exits with 0 whatever fails, so its files "
        "are all there is to go by. Look into the newest file of the folder logs, and run the same command again: "
        "finished runs are kept."
    )


def _results_file(folder: Path) -> Path:
    files = sorted(path for path in folder.rglob("*_results.json") if _RESULTS_NAME.fullmatch(path.name))
    if len(files) != 1:
        found = f"it has {len(files)} results files ({', '.join(path.name for path in files)})" if files else ""
        raise _refusal(folder, found or "it has no results file", "a run writes exactly one, `<time>_results.json`")
    return files[0]


def _parse(folder: Path, content: bytes, name: str) -> _Json:
    try:
        parsed = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also where a character of several bytes was cut
        raise _refusal(folder, f"{name} is no whole JSON ({error})", "it may have been cut while written") from error
    if not isinstance(parsed, dict):
        raise _refusal(folder, f"{name} holds {shown(parsed)}", "it must hold a JSON object")
    return parsed


def _find(folder: Path, results: _Json, *keys: str) -> Any:
    part: Any = results
    for depth, key in enumerate(keys):
        if not isinstance(part, dict) or key not in part:
            there = shown(sorted(part) if isinstance(part, dict) else part)
            place = f"{'/'.join(keys[:depth])} of the results file" if depth else "the results file"
            raise _refusal(folder, f"{place} has no {key!r} (it has: {there})", "without it nothing was measured")
        part = part[key]
    return part


def _value(folder: Path, results: _Json, benchmark: Benchmark) -> float | None:
    """The metric of the results file. None stays None where lmms-eval means 0 by it."""
    value = _find(folder, results, "results", benchmark.task, benchmark.key)
    if value is None and benchmark.none_is_zero:
        return None
    if not _is_number(value):
        raise _refusal(folder, f"{benchmark.key!r} is {shown(value)}", "it must be a finite number")
    return float(value)


def _is_number(value: Any) -> bool:
    # NaN is in no range, and a whole number of 400 digits, which JSON may hold, is no float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _check_seed(folder: Path, results: _Json, seed: int) -> None:
    for name in ("random_seed", "numpy_seed", "torch_seed"):
        found = _find(folder, results, "config", name)
        if found != seed:
            raise _refusal(folder, f"its {name} is {shown(found)}", f"it must be {seed}, as the folder's name says")


def _asked(folder: Path, results: _Json, benchmark: Benchmark, limit: int | None) -> int:
    """How many questions were asked, by the results file; as many as `limit` says, and no others."""
    counts = [_find(folder, results, "n-samples", benchmark.task, name) for name in ("original", "effective")]
    if not all(_is_number(count) and count > 0 and count == int(count) for count in counts):
        raise _refusal(folder, f"n-samples is {shown(counts)}", "it must be two whole numbers from 1")
    there, asked = map(int, counts)
    if asked != min(there, there if limit is None else limit):
        rule = "all were" if limit is None else f"the first {limit} were"
        raise _refusal(folder, f"{asked} of {there} questions were asked", f"{rule} to be asked (--limit)")
    return asked


def _samples(folder: Path, results_file: Path, benchmark: Benchmark, asked: int) -> list[_Json]:
    """The lines of the samples file, in the order of `doc_id`."""
    name = results_file.name.removesuffix("results.json") + f"samples_{benchmark.task}.jsonl"
    try:
        content = results_file.with_name(name).read_bytes()
    except FileNotFoundError as error:
        raise _refusal(folder, f"{name} is not there", "it is written after the results file") from error
    if not content.endswith(b"\n"):
        raise _refusal(folder, f"the last line of {name} has no end", "the file was cut while written")
    # Not `splitlines`: a response may hold U+2028 and other ends of a line, which this JSON does not escape.
    lines = content[:-1].split(b"\n")
    samples = [_parse(folder, line, f"line {number} of {name}") for number, line in enumerate(lines, 1)]
    ids = [sample.get("doc_id") for sample in samples]
    if not all(type(number) is int for number in ids) or len(set(ids)) < len(ids) or len(ids) != asked:
        raise _refusal(
            folder,
            f"{name} has {len(ids)} lines about {len(set(map(str, ids)))} questions (doc_id), and by the results file "
            f"{asked} were asked",
            "there must be one line for each question",
        )
    return sorted(samples, key=lambda sample: sample["doc_id"])


def _response(folder: Path, sample: _Json) -> str:
    """The model's text. `resps` is left out where it is the same as `filtered_resps`; either may be in lists."""
    text = sample.get("resps", sample.get("filtered_resps"))
    while isinstance(text, list) and text:
        text = text[0]
    if not isinstance(text, str):
        raise _refusal(folder, f"question {sample['doc_id']} has no response", "each must have one, of text")
    if text.startswith(FAILED_REQUEST):
        raise _refusal(
            folder,
            f"the request for question {sample['doc_id']} failed: {shown(text)}",
            "every question must be answered by the model, and lmms-eval scores such a text as a wrong answer",
        )
    return text


def _scores(folder: Path, samples: Sequence[_Json], benchmark: Benchmark) -> dict[int, float]:
    scores: dict[int, float] = {}
    for sample in samples:
        try:
            score = benchmark.question_score(sample)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            score, problem = math.nan, repr(error)
        else:
            problem = shown(score)
        if score is None:
            continue
        if not 0 <= score <= 1:
            place = ".".join(map(str, (benchmark.metric, *benchmark.score)))
            found = f"the score of question {sample['doc_id']} ({place}) is {problem}"
            raise _refusal(folder, found, "it must be from 0 to 1")
        scores[sample["doc_id"]] = score
    if not scores:
        raise _refusal(folder, f"none of its {len(samples)} questions has a score", "there must be one at least")
    return scores


def _check_agreement(folder: Path, value: float | None, scores: Sequence[float], benchmark: Benchmark) -> None:
    """A metric over other questions than those in the samples file is another metric."""
    mean = 100 * fmean(scores)
    if value is None:
        agrees = mean == 0
    else:
        # The metrics of 0 to 100 are rounded to two digits (mathvista/utils.py, mathvision/utils.py).
        tolerance = 0.006 if benchmark.scale == 100 else 1e-6
        agrees = abs(100 * value / benchmark.scale - mean) <= tolerance
    if not agrees:
        raise _refusal(
            folder,
            f"{benchmark.key!r} is {value} of {benchmark.scale:g}, and the mean of its {len(scores)} questions is "
            f"{mean:.6f} %",
            "they must be the same",
        )


def _unreadable_verdicts(folder: Path) -> int:
    """How many of the judge's answers were no verdict."""
    try:
        judge = _parse(folder, (folder / "judge.json").read_bytes(), "judge.json")
    except FileNotFoundError as error:
        raise _refusal(folder, "judge.json is not there", "it is written at the end of a judged run") from error
    calls, unreadable = judge.get("calls"), judge.get("unreadable")
    if type(calls) is not int or type(unreadable) is not int or not 0 <= unreadable <= calls:
        raise _refusal(folder, f"judge.json holds {shown(judge)}", "unreadable must be from 0 to calls")
    if unreadable > UNREADABLE_SHARE * calls:
        raise _refusal(
            folder,
            f"{unreadable} of the judge's {calls} answers are no verdict, such as {shown(judge.get('example'))}",
            f"at most {UNREADABLE_SHARE:.0%} may be, since lmms-eval scores each as a wrong answer of the model: take "
            "a judge that keeps to the asked form",
        )
    return unreadable
