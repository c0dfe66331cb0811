"""A run, read from the files of lmms-eval 0.7.3 in its folder `runs/<benchmark>-seed<seed>/`.

    <model>/<time>_results.json                         the aggregated metrics, written first
    <model>/<time>_samples_vade_<benchmark>.jsonl       a line for each question, appended one by one
    judge.json                                          only for a judged benchmark; written by `runner`

lmms-eval 0.7.3 exits with 0 after every error, only warns about a file that it cannot write, and scores a missing
answer as wrong. So a run is valid only if its files are complete and agree with each other.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated

from ..benchmarks import Benchmark
from .samples import foreign_extractions, parse, read_samples, refusal, response_of, scores_of

UNREADABLE_SHARE = 0.01
"""Largest share of the judge's answers without a verdict. lmms-eval scores each as a wrong answer."""
# MathVerse's task also writes `submissions/mathverse_testmini_results.json`, which is not a results file.
_RESULTS_NAME = re.compile(r"\d{8}_\d{6}_results\.json")
_Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A valid run: one benchmark with one seed."""

    benchmark: Benchmark
    seed: int
    score: float  # the metric in per cent
    questions: int  # the number of scored questions
    unscored: int  # the number of questions whose reference cannot be read; they do not count
    results_file: Path  # the file of lmms-eval
    unreadable_verdicts: int  # the number of the judge's answers without a verdict, which lmms-eval took for "wrong"
    texts_digest: str  # SHA-256 of the responses, in the order of `doc_id`
    scores: dict[int, float]  # by `doc_id`, the score of each scored question, 0 to 1


def run_folder(output: Path, benchmark: Benchmark, seed: int) -> Path:
    """Return the folder of a run in the output directory."""
    return output / "runs" / f"{benchmark.name}-seed{seed}"


def question_scores(runs: Sequence[Run]) -> dict[int, float]:
    """Return by `doc_id` the score of each question in per cent, its mean over the runs that scored it."""
    documents = {document for run in runs for document in run.scores}
    return {one: fmean(100 * run.scores[one] for run in runs if one in run.scores) for one in documents}


def finished_run(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run | None:
    """Return the run in `folder` as `read_run` does, or None if it is not valid."""
    try:
        return read_run(folder, benchmark, seed, limit)
    except EvaluationError:
        return None


def finished_runs(
    output: Path, benchmarks: Sequence[Benchmark], seeds: Sequence[int], limit: int | None
) -> dict[tuple[str, int], Run]:
    """Return the valid runs in the output directory by benchmark and seed, seed by seed."""
    pairs = [(benchmark, seed) for seed in seeds for benchmark in benchmarks]
    found = {(one.name, seed): finished_run(run_folder(output, one, seed), one, seed, limit) for one, seed in pairs}
    return {name_and_seed: run for name_and_seed, run in found.items() if run}


def read_run(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run:
    """Read the run in `folder` and check it. With a `limit`, it must have asked the first `limit` questions.

    Raises:
        EvaluationError: the run is missing or incomplete, its files disagree, seed or limit differ, requests failed,
            or too many of the judge's answers have no verdict.
        OSError: a file exists but cannot be read.
    """
    file = _results_file(folder)
    results = parse(folder, file.read_bytes(), str(file.relative_to(folder)))
    score = 100 * _value(folder, results, benchmark)
    for name in ("random_seed", "numpy_seed", "torch_seed"):
        if (found := _find(folder, results, "config", name)) != seed:
            rule = f"it must be {seed}, as the folder's name says"
            raise refusal(folder, f"its {name} is {abbreviated(found)}", rule)
    samples = read_samples(folder, file, benchmark, _asked(folder, results, benchmark, limit))
    responses = [response_of(folder, sample) for sample in samples]
    scores = scores_of(folder, samples, benchmark)
    mean = 100 * fmean(scores.values())
    if abs(score - mean) > 1e-6:
        found = f"{benchmark.key!r} is {score} %, and the mean of its {len(scores)} questions is {mean:.6f} %"
        raise refusal(folder, found, "they must be the same")
    return Run(
        benchmark=benchmark,
        seed=seed,
        score=score,
        questions=len(scores),
        unscored=len(samples) - len(scores),
        results_file=file,
        unreadable_verdicts=_unreadable_verdicts(folder, samples) if benchmark.judged else 0,
        texts_digest=hashlib.sha256(json.dumps(responses).encode()).hexdigest(),
        scores=scores,
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
            raise refusal(folder, f"{place} has no {key!r} (it has: {there})", "it must have one")
        part = part[key]
    return part


def _value(folder: Path, results: _Json, benchmark: Benchmark) -> float:
    value = _find(folder, results, "results", benchmark.task, benchmark.key)
    if not _is_number(value):
        raise refusal(folder, f"{benchmark.key!r} is {abbreviated(value)}", "it must be a finite number")
    return float(value)


def _is_number(value: Any) -> bool:
    # False for NaN, and for whole numbers of JSON that are too large for a float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _asked(folder: Path, results: _Json, benchmark: Benchmark, limit: int | None) -> int:
    """Return the number of questions in the results file, which must fit `limit`."""
    counts = [_find(folder, results, "n-samples", benchmark.task, name) for name in ("original", "effective")]
    if not all(_is_number(count) and count > 0 and count == int(count) for count in counts):
        raise refusal(folder, f"n-samples is {abbreviated(counts)}", "it must be two whole numbers from 1")
    there, asked = map(int, counts)
    if asked != min(there, there if limit is None else limit):
        rule = "all were" if limit is None else f"the first {limit} were"
        raise refusal(folder, f"{asked} of {there} questions were asked", f"{rule} to be asked (--limit)")
    return asked


def _unreadable_verdicts(folder: Path, samples: Sequence[_Json]) -> int:
    """Return how many of the judge's answers have no verdict, or no answer from the response."""
    try:
        judge = parse(folder, (folder / "judge.json").read_bytes(), "judge.json")
    except FileNotFoundError as error:
        raise refusal(folder, "judge.json is missing", "it is written at the end of a judged run") from error
    calls, unreadable = judge.get("calls"), judge.get("unreadable")
    if type(calls) is not int or type(unreadable) is not int or not 0 <= unreadable <= calls:
        raise refusal(folder, f"judge.json holds {abbreviated(judge)}", "unreadable must be from 0 to calls")
    foreign = foreign_extractions(samples)
    unreadable, example = unreadable + len(foreign), judge.get("example") or next(iter(foreign), None)
    if unreadable > UNREADABLE_SHARE * calls:
        raise refusal(
            folder,
            f"{unreadable} of the judge's {calls} answers have no verdict, such as {abbreviated(example)}",
            f"at most {UNREADABLE_SHARE:.0%} may lack one, because lmms-eval scores each as a wrong answer of the "
            "model: take a judge that follows the asked form",
        )
    return unreadable
