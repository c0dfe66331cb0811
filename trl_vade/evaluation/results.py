"""`results.json` and `results.md` of an evaluation: means of its runs, and a table with the paper's beside."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from trl_vade.errors import EvaluationError
from trl_vade.files import save_whole
from trl_vade.hub.card_parts import markdown_table

from .benchmarks import BENCHMARKS, FIVE, PAPER
from .run_files import Run

PAPER_JUDGE = "Qwen2.5-72B-Instruct"
Results = Mapping[str, Any]  # the content of `results.json`


def table_of(results: Results) -> str:
    """Return a Markdown table with this model's row, the paper's rows, and notes about the figures."""
    benchmarks, average = results["benchmarks"], results["average"]
    whole = set(average["of"]) == set(FIVE)
    head = ["Model", *(benchmark["title"] for benchmark in benchmarks.values())]
    head.append("Average" if whole else f"Average of these {len(average['of'])}")
    measured = [measurement(name, part) for name, part in benchmarks.items()]
    rows = [[what, *(one[what] for one in measured), ""] for what in measured[0]]
    rows += [[results["model"]["name"], *map(_with_error, benchmarks.values()), _with_error(average)]]
    rows += _paper_rows(results)
    if len(benchmarks) == 1:  # a single benchmark is its own average
        head, rows = head[:-1], [row[:-1] for row in rows]
    return "\n".join([markdown_table(head, rows), "", *(f"* {line}" for line in _notes(results))])


def write_results(output: Path, facts: Mapping[str, Any], runs: Sequence[Run]) -> Results:
    """Write `results.md` and then `results.json` into `output`, each atomically, and return the latter, in per cent.

    The standard error is that of the mean over the runs, sample standard deviation / sqrt(n), and the average's over
    those of the seeds: of the sampling of answers, not the choice of questions. A greedy run counts for each seed.
    """
    names = sorted({run.benchmark.name for run in runs}, key=list(BENCHMARKS).index)
    of_name = {name: [run for run in runs if run.benchmark.name == name] for name in names}
    count = max(map(len, of_name.values()))
    averages = [fmean(found[index % len(found)].score for found in of_name.values()) for index in range(count)]
    content = {name: part for name, part in facts.items() if name != "decoding"}
    content["benchmarks"] = {
        name: {
            **{part: getattr(BENCHMARKS[name], part) for part in ("title", "task", "metric", "scorer")},
            "dataset": None if name in facts["data"] else BENCHMARKS[name].dataset,
            "decoding": facts["decoding"][name],
            "questions": min(run.questions for run in found),
            **_mean_and_error([run.score for run in found]),
            "runs": [_about(run, output) for run in found],
        }
        for name, found in of_name.items()
    }
    content["average"] = {"of": names, **_mean_and_error(averages)}
    save_whole(output / "results.md", f"{table_of(content)}\n".encode())
    save_whole(output / "results.json", f"{json.dumps(content, indent=2)}\n".encode())
    return content


def read_results(output: Path) -> Results:
    """Read the `results.json` of the output directory `output`; without a whole one, raise `EvaluationError`."""
    path = output / "results.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{path} cannot be read ({error}). Run the evaluation's command again.") from error


def measurement(name: str, part: Mapping[str, Any]) -> dict[str, str]:
    """Return what was measured, in words: only equal figures can be compared."""
    runs, asked, there = len(part["runs"]), part["questions"], BENCHMARKS[name].questions
    return {
        "Questions": f"{asked:,}" if there in (None, asked) else f"{asked:,} of {there:,}",
        "Decoding": f"{part['decoding']}, {runs} run{'s' * (runs > 1)}",
        "Scorer": part["scorer"],
    }


def _about(run: Run, output: Path) -> dict[str, Any]:
    found = {name: getattr(run, name) for name in ("seed", "score", "questions", "unscored", "unreadable_verdicts")}
    return found | {"results_file": run.results_file.relative_to(output).as_posix()}


def _mean_and_error(scores: Sequence[float]) -> dict[str, float | None]:
    error = stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return {"mean": fmean(scores), "stderr": error}


def _with_error(part: Mapping[str, Any]) -> str:
    return f"{part['mean']:.2f}" if part["stderr"] is None else f"{part['mean']:.2f} ± {part['stderr']:.2f}"


def _paper_rows(results: Results) -> list[list[str]]:
    names, model = list(results["benchmarks"]), results["model"]["name"].lower()
    if not set(names) & set(FIVE):
        return []
    of_size, rows = [row for row in PAPER if row[0].split("-")[2].lower() in model], []
    for row in of_size or PAPER:
        scores = dict(zip(FIVE, PAPER[row], strict=True))
        cells = [f"{scores[name]:.2f}" if name in scores else "-" for name in names]
        average = f"{fmean(scores[name] for name in names):.2f}" if set(names) <= set(FIVE) else "-"
        rows.append([f"{', '.join(row)} (paper)", *cells, average])
    return rows


def _notes(results: Results) -> list[str]:
    benchmarks, seeds, judge = results["benchmarks"], results["seeds"], results["judge"]
    error = "mean ± standard error of the mean over" if len(seeds) > 1 else "one run,"
    notes = [f"Per cent, average@{len(seeds)}: {error} seeds {', '.join(map(str, seeds))}."]
    for name, part in benchmarks.items():
        folder = results["data"].get(name)
        place = f"the user's folder {folder}" if folder else part["dataset"] or "the embedded data set"
        unscored = max(run["unscored"] for run in part["runs"])
        left_out = f"; {unscored} more have an unreadable reference" if unscored else ""
        notes.append(f"{part['title']}: `{part['metric']}`, questions of {place}{left_out}.")
    if results["limit"] is not None:
        notes.append(f"Only the first {results['limit']} questions of each benchmark.")
    if judge is not None:
        unreadable = sum(run["unreadable_verdicts"] for part in benchmarks.values() for run in part["runs"])
        paper = "" if PAPER_JUDGE in judge["model"] else f" The paper's judge is {PAPER_JUDGE}."
        notes.append(f"Judge: {judge['model']}.{paper} {unreadable} of its answers had no verdict and count as wrong.")
    if set(benchmarks) & set(FIVE):
        notes.append(
            "The rows of the paper: VADE, arXiv 2511.18902, Table 1, average@4. By its figures, ScienceQA-IMG and "
            "ChartQA are one greedy run, scored by lmms-eval. MathVista, MathVerse and MathVision are four runs, "
            "scored by their official code with a judge. Other settings are not known. Only like compares with like."
        )
    return notes
