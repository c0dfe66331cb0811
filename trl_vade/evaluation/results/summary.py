"""From runs to `results.json` and `results.md`."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from trl_vade.errors import EvaluationError
from trl_vade.files import save_whole

from ..benchmarks import BENCHMARKS
from .runs import Run
from .table import FORMAT, Results

_Json = dict[str, Any]


def summarise_runs(runs: Sequence[Run], seeds: Sequence[int]) -> _Json:
    """The parts "benchmarks" and "average" of `results.json`, in per cent; the order of `runs` does not matter.

    The standard error is that of the mean over the runs, sample standard deviation / sqrt(n): how far chance in the
    decoding moves the mean, not how far other questions would. The average's is over the averages of each seed.

    Raises:
        EvaluationError: a benchmark has not exactly one run of each seed, or its runs are about different questions.
    """
    names = sorted({run.benchmark.name for run in runs}, key=list(BENCHMARKS).index)
    if not names or not seeds:
        raise EvaluationError(f"There are {len(runs)} runs of the seeds {list(seeds)}; without one there is no mean.")
    chosen = {name: _runs_of_each_seed(name, runs, seeds) for name in names}
    averages = [fmean(chosen[name][index].score for name in names) for index in range(len(seeds))]
    return {
        "benchmarks": {name: _summary(chosen[name]) for name in names},
        "average": {"of": names, **_mean_and_error(averages)},
    }


def _runs_of_each_seed(name: str, runs: Sequence[Run], seeds: Sequence[int]) -> list[Run]:
    of_seed = {run.seed: run for run in runs if run.benchmark.name == name}
    there = sorted(run.seed for run in runs if run.benchmark.name == name)
    if there != sorted(seeds):
        raise EvaluationError(
            f"{name} has runs with the seeds {there}; there must be one run for each of {sorted(seeds)}, or the means "
            "of the benchmarks are over different runs. Run the same command again: it makes those that are missing."
        )
    chosen = [of_seed[seed] for seed in seeds]
    asked = {run.questions + run.unscored for run in chosen}
    if len(asked) > 1 or len({_digest(run) for run in chosen}) > 1:
        raise EvaluationError(
            f"The runs of {name} asked {' or '.join(map(str, sorted(asked)))} questions, and not all the same; all "
            "must ask the same, or their mean is of nothing. Its data changed in between: use another --output_path."
        )
    return chosen


def _digest(run: Run) -> str:
    return hashlib.sha256(json.dumps(sorted(run.question_digests.items())).encode()).hexdigest()[:16]


def _mean_and_error(scores: Sequence[float]) -> _Json:
    error = stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return {"mean": fmean(scores), "stderr": error}


def _summary(runs: Sequence[Run]) -> _Json:
    benchmark = runs[0].benchmark
    return {
        "title": benchmark.title,
        "task": benchmark.task,
        "metric": benchmark.metric,
        "dataset": benchmark.dataset,
        "questions": min(run.questions for run in runs),
        "questions_digest": _digest(runs[0]),  # the data set on the Hub may become another
        **_mean_and_error([run.score for run in runs]),
        "identical_runs": len(runs) > 1 and len({run.texts_digest for run in runs}) == 1,
        "runs": [
            {
                "seed": run.seed,
                "score": run.score,
                "value": run.value,
                "questions": run.questions,
                "unscored": run.unscored,
                "results_file": run.results_file.as_posix(),
                "unreadable_verdicts": run.unreadable_verdicts,
            }
            for run in runs
        ],
    }


def write_results(output: Path, facts: Mapping[str, Any], runs: Sequence[Run]) -> Results:
    """Write `results.md` and then `results.json`, each whole or not at all, into `output`; return the latter.

    Args:
        facts: the rest of `results.json`, from "model" to "finished". A benchmark that is in its "data" was asked
            about a folder of the user's: its "dataset" is None, since nobody knows whether it is the one of the Hub.

    Raises:
        EvaluationError: `runs` or `facts` are not complete.
        OSError: the disk refused.
    """
    runs = [replace(run, results_file=Path(os.path.relpath(run.results_file, output))) for run in runs]
    content = {"format": FORMAT, **facts, **summarise_runs(runs, facts["seeds"])}
    for name in facts["data"]:
        if name in content["benchmarks"]:
            content["benchmarks"][name]["dataset"] = None
    results = Results.checked(content, "What is to be written to results.json")
    save_whole(output / "results.md", f"{results.table()}\n".encode())
    save_whole(output / "results.json", f"{json.dumps(content, indent=2, allow_nan=False)}\n".encode())
    return results
