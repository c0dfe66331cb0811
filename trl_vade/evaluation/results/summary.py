"""The files `results.json` and `results.md`, computed from runs."""

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
from .table import FORMAT, Results, digest_of, seeds_of

_Json = dict[str, Any]
_OF_A_RUN = ("seed", "score", "questions", "unscored", "results_file", "unreadable_verdicts")


def summarise_runs(runs: Sequence[Run], seeds: Sequence[int], decoding: Mapping[str, str]) -> _Json:
    """Return the parts "benchmarks" and "average" of `results.json`, in per cent.

    The standard error is that of the mean over the runs, sample standard deviation / sqrt(n). It measures the sampling
    of answers, not the choice of questions. The average's standard error is over the averages of the seeds. A greedy
    benchmark has one run, which counts for each seed. `decoding` has words by benchmark.

    Raises:
        EvaluationError: a benchmark does not have one run of each seed, or its runs asked more or fewer questions.
    """
    names = sorted({run.benchmark.name for run in runs}, key=list(BENCHMARKS).index)
    if not names or not seeds:
        raise EvaluationError(f"There are {len(runs)} runs of the seeds {list(seeds)}, but a mean needs at least one.")
    chosen = {name: _runs_of_each_seed(name, runs, seeds_of(decoding[name], seeds)) for name in names}
    count = max(map(len, chosen.values()))
    averages = [fmean(chosen[name][index % len(chosen[name])].score for name in names) for index in range(count)]
    return {
        "benchmarks": {name: _summary(chosen[name], decoding[name]) for name in names},
        "average": {"of": names, **_mean_and_error(averages)},
    }


def _runs_of_each_seed(name: str, runs: Sequence[Run], seeds: Sequence[int]) -> list[Run]:
    of_seed = {run.seed: run for run in runs if run.benchmark.name == name}
    there = sorted(run.seed for run in runs if run.benchmark.name == name)
    if there != sorted(seeds):
        raise EvaluationError(
            f"{name} has runs with the seeds {there}; there must be one run for each of {sorted(seeds)}. Run the same "
            "command again to make the missing runs."
        )
    chosen = [of_seed[seed] for seed in seeds]
    asked = {run.questions + run.unscored for run in chosen}
    if len(asked) > 1:
        raise EvaluationError(
            f"The runs of {name} asked {' or '.join(map(str, sorted(asked)))} questions. Its data changed between the "
            "runs: use another --output_path."
        )
    return chosen


def _mean_and_error(scores: Sequence[float]) -> _Json:
    error = stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return {"mean": fmean(scores), "stderr": error}


def _summary(runs: Sequence[Run], decoding: str) -> _Json:
    benchmark = runs[0].benchmark
    return {
        **{name: getattr(benchmark, name) for name in ("title", "task", "metric", "dataset", "scorer")},
        "decoding": decoding,
        "questions": min(run.questions for run in runs),
        **_mean_and_error([run.score for run in runs]),
        "identical_runs": len(runs) > 1 and len({run.texts_digest for run in runs}) == 1,
        "runs": [
            {name: getattr(run, name) for name in _OF_A_RUN} | {"results_file": run.results_file.as_posix()}
            for run in runs
        ],
    }


def write_results(output: Path, facts: Mapping[str, Any], runs: Sequence[Run]) -> Results:
    """Write `results.md` and then `results.json` into `output`, each atomically, and return the latter.

    `facts` are the other parts of `results.json`, from "model" to "finished". A benchmark in its "data" used a folder
    of the user's, so its "dataset" becomes None.

    Raises:
        EvaluationError: `runs` are not complete.
        OSError: a file cannot be written.
    """
    runs = [replace(run, results_file=Path(os.path.relpath(run.results_file, output))) for run in runs]
    summary = summarise_runs(runs, facts["seeds"], facts["decoding"])
    content = {"format": FORMAT, **facts, **summary}
    del content["decoding"]  # is in the parts
    for name in facts["data"]:
        if name in content["benchmarks"]:
            content["benchmarks"][name]["dataset"] = None
    results = Results({**content, "digest": digest_of(content)})
    save_whole(output / "results.md", f"{results.table()}\n".encode())
    save_whole(output / "results.json", f"{json.dumps(results.content, indent=2, allow_nan=False)}\n".encode())
    return results
