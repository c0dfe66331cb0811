"""A run, read from what lmms-eval 0.7.3 left in its folder `runs/<benchmark>-seed<seed>/`.

    <model>/<time>_results.json                         the aggregated metrics, written first
    <model>/<time>_samples_vade_<benchmark>.jsonl       a line a question, appended one by one
    judge.json                                          of a judged benchmark; written by this package's own process

lmms-eval 0.7.3 ends with exit status 0 whatever fails, logs a file that it cannot write as a warning, and scores an
answer that it never got as a wrong one. So a run counts only if its files are whole and agree with each other.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated

from ..benchmarks import Benchmark
from .samples import foreign_extractions, parse, question_digests, read_samples, refusal, response_of, scores_of

UNREADABLE_SHARE = 0.01
"""Up to this share of the judge's answers may be no verdict. lmms-eval scores each of them as a wrong answer."""
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
        question_digests: of every question's text and target, by `doc_id`: what tells other questions with the same
            ids (`samples.question_digests`).
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
    question_digests: dict[int, str] = field(default_factory=dict)


def run_folder(output: Path, benchmark: Benchmark, seed: int) -> Path:
    """Where the run of `benchmark` with `seed` is, in the output directory `output`."""
    return output / "runs" / f"{benchmark.name}-seed{seed}"


def question_scores(runs: Sequence[Run]) -> dict[int, float]:
    """The score of each question in per cent, its mean over the runs in which it counts, by document id."""
    documents = {document for run in runs for document in run.scores}
    return {one: fmean(100 * run.scores[one] for run in runs if one in run.scores) for one in documents}


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
    results = parse(folder, file.read_bytes(), str(file.relative_to(folder)))
    value = _value(folder, results, benchmark)
    _check_seed(folder, results, seed)
    samples = read_samples(folder, file, benchmark, _asked(folder, results, benchmark, limit))
    responses = [response_of(folder, sample) for sample in samples]
    scores = scores_of(folder, samples, benchmark)
    _check_agreement(folder, value, list(scores.values()), benchmark)
    return Run(
        benchmark=benchmark,
        seed=seed,
        value=value,
        score=0.0 if value is None else 100 * value / benchmark.scale,
        questions=len(scores),
        unscored=len(samples) - len(scores),
        results_file=file,
        unreadable_verdicts=_unreadable_verdicts(folder, samples, benchmark) if benchmark.judged else 0,
        texts_digest=hashlib.sha256(json.dumps(responses).encode()).hexdigest(),
        scores=scores,
        question_digests=question_digests(samples),
    )


def _results_file(folder: Path) -> Path:
    files = sorted(path for path in folder.rglob("*_results.json") if _RESULTS_NAME.fullmatch(path.name))
    if len(files) != 1:
        found = f"it has {len(files)} results files ({', '.join(path.name for path in files)})" if files else ""
        raise refusal(folder, found or "it has no results file", "a run writes exactly one, `<time>_results.json`")
    return files[0]


def _find(folder: Path, results: _Json, *keys: str) -> Any:
    part: Any = results
    for depth, key in enumerate(keys):
        if not isinstance(part, dict) or key not in part:
            there = abbreviated(sorted(part) if isinstance(part, dict) else part)
            place = f"{'/'.join(keys[:depth])} of the results file" if depth else "the results file"
            raise refusal(folder, f"{place} has no {key!r} (it has: {there})", "without it nothing was measured")
        part = part[key]
    return part


def _value(folder: Path, results: _Json, benchmark: Benchmark) -> float | None:
    """The metric of the results file. None stays None where lmms-eval means 0 by it."""
    value = _find(folder, results, "results", benchmark.task, benchmark.key)
    if value is None and benchmark.none_is_zero:
        return None
    if not _is_number(value):
        raise refusal(folder, f"{benchmark.key!r} is {abbreviated(value)}", "it must be a finite number")
    return float(value)


def _is_number(value: Any) -> bool:
    # NaN is in no range, and a whole number of 400 digits, which JSON may hold, is no float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _check_seed(folder: Path, results: _Json, seed: int) -> None:
    for name in ("random_seed", "numpy_seed", "torch_seed"):
        found = _find(folder, results, "config", name)
        if found != seed:
            raise refusal(
                folder, f"its {name} is {abbreviated(found)}", f"it must be {seed}, as the folder's name says"
            )


def _asked(folder: Path, results: _Json, benchmark: Benchmark, limit: int | None) -> int:
    """How many questions were asked, by the results file; as many as `limit` says, and no others."""
    counts = [_find(folder, results, "n-samples", benchmark.task, name) for name in ("original", "effective")]
    if not all(_is_number(count) and count > 0 and count == int(count) for count in counts):
        raise refusal(folder, f"n-samples is {abbreviated(counts)}", "it must be two whole numbers from 1")
    there, asked = map(int, counts)
    if asked != min(there, there if limit is None else limit):
        rule = "all were" if limit is None else f"the first {limit} were"
        raise refusal(folder, f"{asked} of {there} questions were asked", f"{rule} to be asked (--limit)")
    return asked


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
        raise refusal(
            folder,
            f"{benchmark.key!r} is {value} of {benchmark.scale:g}, and the mean of its {len(scores)} questions is "
            f"{mean:.6f} %",
            "they must be the same",
        )


def _unreadable_verdicts(folder: Path, samples: Sequence[_Json], benchmark: Benchmark) -> int:
    """How many of the judge's answers were no verdict, or no answer out of a response."""
    try:
        judge = parse(folder, (folder / "judge.json").read_bytes(), "judge.json")
    except FileNotFoundError as error:
        raise refusal(folder, "judge.json is not there", "it is written at the end of a judged run") from error
    calls, unreadable = judge.get("calls"), judge.get("unreadable")
    if type(calls) is not int or type(unreadable) is not int or not 0 <= unreadable <= calls:
        raise refusal(folder, f"judge.json holds {abbreviated(judge)}", "unreadable must be from 0 to calls")
    foreign = foreign_extractions(samples, benchmark) if benchmark.extracted else []
    unreadable, example = unreadable + len(foreign), judge.get("example") or next(iter(foreign), None)
    if unreadable > UNREADABLE_SHARE * calls:
        raise refusal(
            folder,
            f"{unreadable} of the judge's {calls} answers are no verdict, such as {abbreviated(example)}",
            f"at most {UNREADABLE_SHARE:.0%} may be, since lmms-eval scores each as a wrong answer of the model: take "
            "a judge that keeps to the asked form",
        )
    return unreadable
