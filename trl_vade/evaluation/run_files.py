"""A run, read from the files of lmms-eval 0.7.3 in its folder `runs/<benchmark>-seed<seed>/`.

    <model>/<time>_results.json                         the aggregated metrics, written first
    <model>/<time>_samples_vade_<benchmark>.jsonl       a line for each question, appended one by one
    judge.json                                          only for a judged benchmark; written by `runner`

lmms-eval 0.7.3 exits with 0 after every error, only warns about a file that it cannot write, and scores a missing
answer as wrong. So a run is valid only if its files are complete and agree with each other.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated

from .benchmarks import Benchmark

UNREADABLE_SHARE = 0.01  # the largest share of the judge's answers without a verdict, which score as wrong answers
FAILED_REQUEST = "[LMMS_EVAL_REQUEST_FAILED"  # lmms-eval's answer after a failed request (models/chat/openai.py)
# MathVerse's task also writes `submissions/mathverse_testmini_results.json`, which is not a results file.
_RESULTS_NAME = re.compile(r"\d{8}_\d{6}_results\.json")


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
    scores: dict[int, float]  # by `doc_id`, the score of each scored question, 0 to 1


def run_folder(output: Path, benchmark: Benchmark, seed: int) -> Path:
    """Return the folder of a run in the output directory."""
    return output / "runs" / f"{benchmark.name}-seed{seed}"


def read_run(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run:
    """Read the run in `folder`, and raise `EvaluationError` unless it is whole.

    That is: its files are there and agree, seed and `limit` are these, no request failed, and the judge gave verdicts.
    """
    try:
        return _read(folder, benchmark, seed, limit)
    except (OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise EvaluationError(
            f"The run {folder} is not valid: {what}. See the newest file of logs, and run the same command again."
        ) from error


def _read(folder: Path, benchmark: Benchmark, seed: int, limit: int | None) -> Run:
    files = [path for path in folder.rglob("*_results.json") if _RESULTS_NAME.fullmatch(path.name)]
    _require(len(files) == 1, f"it has {len(files)} results files, and must have one, `<time>_results.json`")
    results = json.loads(files[0].read_text(encoding="utf-8"))
    seeds = {results["config"][name] for name in ("random_seed", "numpy_seed", "torch_seed")}
    _require(seeds == {seed}, f"its seeds are {seeds}, and must be {seed}")
    there, asked = (results["n-samples"][benchmark.task][name] for name in ("original", "effective"))
    wanted = there if limit is None else min(there, limit)
    _require(asked == wanted, f"{asked} of {there} questions were asked, and must be {wanted} (--limit {limit})")

    samples = _samples(files[0], benchmark)
    ids = {sample["doc_id"] for sample in samples}
    same = len(ids) == len(samples) == asked
    _require(same, f"{len(samples)} lines about {len(ids)} questions are there, and must be one for each of {asked}")
    for sample in samples:
        text = sample.get("resps", sample.get("filtered_resps"))  # the former is missing if both are equal
        while isinstance(text, list) and text:
            text = text[0]
        answered = isinstance(text, str) and not text.startswith(FAILED_REQUEST)  # which would score as wrong
        _require(answered, f"question {sample['doc_id']} has no answer of the model, but {abbreviated(text)}")
    scores = {one["doc_id"]: float(one[benchmark.metric]) for one in samples if one[benchmark.metric] is not None}
    score, mean = results["results"][benchmark.task][benchmark.key], fmean(scores.values())
    _require(abs(score - mean) < 1e-8, f"its score is {score}, and the mean of its {len(scores)} questions {mean}")
    return Run(
        benchmark=benchmark,
        seed=seed,
        score=100 * score,
        questions=len(scores),
        unscored=len(samples) - len(scores),
        results_file=files[0],
        unreadable_verdicts=_unreadable_verdicts(folder, samples) if benchmark.judged else 0,
        scores=scores,
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _samples(results_file: Path, benchmark: Benchmark) -> list[dict[str, Any]]:
    file = results_file.with_name(results_file.name.replace("results.json", f"samples_{benchmark.task}.jsonl"))
    content = file.read_bytes()
    _require(content.endswith(b"\n"), f"the last line of {file.name} has no end: it was cut while it was written")
    # Not `splitlines`: a response may hold U+2028 and other line ends, which this JSON does not escape.
    samples = [json.loads(line) for line in content[:-1].split(b"\n")]
    return sorted(samples, key=lambda sample: int(sample["doc_id"]))


def _unreadable_verdicts(folder: Path, samples: Sequence[Mapping[str, Any]]) -> int:
    """Return how many of the judge's answers have no verdict, or no answer from the response."""
    judge = json.loads((folder / "judge.json").read_text(encoding="utf-8"))
    foreign = [sample["unreadable"] for sample in samples if sample.get("unreadable")]  # see `scoring.mathvista`
    count, example = judge["unreadable"] + len(foreign), judge["example"] or "".join(foreign[:1])
    _require(
        count <= UNREADABLE_SHARE * judge["calls"],
        f"{count} of the judge's {judge['calls']} answers have no verdict, such as {abbreviated(example)}; "
        f"{UNREADABLE_SHARE:.0%} may",
    )
    return int(count)
