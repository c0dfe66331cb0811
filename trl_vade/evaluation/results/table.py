"""`results.json` of an evaluation: its checks, and its table beside the paper's."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated
from trl_vade.hub.cards import markdown_table

from ..benchmarks import BENCHMARKS, FIVE, PAPER, PaperRow

FORMAT = 2  # version of the format of `results.json`
PAPER_JUDGE = "Qwen2.5-72B-Instruct"
_AGAIN = "Run the evaluation's command again: finished runs are kept."
_CHANGED = f"Another program changed it. {_AGAIN}"


@dataclass(frozen=True)
class Results:
    """The content of `results.json`; `results["seeds"]` is a part. See `read_results`, `write_results`."""

    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def table(self) -> str:
        """Return a Markdown table with this model's row, the paper's rows, and notes about the figures."""
        benchmarks, average = self["benchmarks"], self["average"]
        whole = set(average["of"]) == set(FIVE)
        head = ["Model", *(benchmark["title"] for benchmark in benchmarks.values())]
        head.append("Average" if whole else f"Average of these {len(average['of'])}")
        measured = [measurement(name, part) for name, part in benchmarks.items()]
        rows = [[what, *(one[what] for one in measured), ""] for what in measured[0]]
        rows += [[self["model"]["name"], *map(_with_error, benchmarks.values()), _with_error(average)]]
        rows += [_paper_cells(row, list(benchmarks)) for row in _paper_rows(self)]
        if len(benchmarks) == 1:  # a single benchmark is its own average
            head, rows = head[:-1], [row[:-1] for row in rows]
        return "\n".join([markdown_table(head, rows), "", *(f"* {line}" for line in _notes(self))])


def seeds_of(decoding: str, seeds: Sequence[int]) -> Sequence[int]:
    """Return the seeds of a benchmark: the first one alone for greedy answers (`settings.Generation.named`)."""
    return seeds[:1] if decoding.startswith("greedy") else seeds


def measurement(name: str, part: Mapping[str, Any]) -> dict[str, str]:
    """Return what was measured, in words: only equal figures can be compared."""
    runs, asked, there = len(part["runs"]), part["questions"], BENCHMARKS[name].questions
    return {
        "Questions": f"{asked:,}" if there in (None, asked) else f"{asked:,} of {there:,}",
        "Decoding": f"{part['decoding']}, {runs} run{'s' * (runs > 1)}",
        "Scorer": part["scorer"],
    }


def read_results(output: Path) -> Results:
    """Read the `results.json` of the output directory `output` and check it.

    Raises:
        EvaluationError: the file is missing, or not as `write_results` of this release wrote it.
        OSError: the file exists but cannot be read.
    """
    path = output / "results.json"
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise EvaluationError(f"{path} is missing; it is written after the last run. {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"{path} is not complete JSON ({error}). {_CHANGED}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else content
        raise EvaluationError(
            f"{path}: its format is {abbreviated(found)}, but this release reads only {FORMAT}. Use the release of "
            "trl_vade that wrote it, or run the evaluation's command again."
        )
    if content.get("digest") != digest_of(content):
        raise EvaluationError(f"{path} is not as it was written: its digest is another. {_CHANGED}")
    return Results(content)


def digest_of(content: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits of results, but for the command, whose local paths are not published."""
    kept = {name: part for name, part in content.items() if name not in ("digest", "command")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _with_error(part: Mapping[str, Any]) -> str:
    return f"{part['mean']:.2f}" if part["stderr"] is None else f"{part['mean']:.2f} ± {part['stderr']:.2f}"


def _paper_rows(results: Results) -> list[PaperRow]:
    if not any(name in FIVE for name in results["benchmarks"]):
        return []
    sizes = {size.upper() for size in re.findall(r"(?<![\d.])[37]B(?![a-z\d])", results["model"]["name"], re.I)}
    return [row for row in PAPER if not sizes or any(f"-{size}-" in row.model for size in sizes)]


def _paper_cells(row: PaperRow, names: Sequence[str]) -> list[str]:
    scores = dict(zip(FIVE, row.scores, strict=True))
    method = "base" if row.method == "base" else f"{row.algorithm}, {row.method}"
    cells = [f"{scores[name]:.2f}" if name in scores else "-" for name in names]
    average = f"{fmean(scores[name] for name in names):.2f}" if set(names) <= set(FIVE) else "-"
    return [f"{row.model}, {method} (paper)", *cells, average]


def _notes(results: Results) -> list[str]:
    """Return the notes below the table."""
    benchmarks, seeds, judge = results["benchmarks"], results["seeds"], results["judge"]
    runs = f"over {len(seeds)} runs (seeds {', '.join(map(str, seeds))})" if len(seeds) > 1 else f"seed {seeds[0]}"
    error = "mean ± standard error of the mean " if len(seeds) > 1 else "one run, "
    notes = [f"Per cent, average@{len(seeds)}: {error}{runs}."]
    notes += [_column_note(name, results) for name in benchmarks]
    if results["limit"] is not None:
        notes.append(f"Only the first {results['limit']} questions of each benchmark.")
    if judge is not None:
        unreadable = sum(run["unreadable_verdicts"] for part in benchmarks.values() for run in part["runs"])
        paper = "" if PAPER_JUDGE in judge["model"] else f" The paper's judge is {PAPER_JUDGE}."
        lost = f" {unreadable} of its answers had no verdict and count as wrong." if unreadable else ""
        notes.append(f"Judge: {judge['model']}.{paper}{lost}")
    same = [part["title"] for part in benchmarks.values() if part["identical_runs"]]
    if same:
        notes.append(f"All runs of {', '.join(same)} gave the same texts: they are not independent runs.")
    return notes + _paper_notes(results)


def _column_note(name: str, results: Results) -> str:
    part = results["benchmarks"][name]
    folder = "the embedded data set" if name == "testbed" else f"the user's folder {results['data'].get(name)}"
    place = part["dataset"] or folder
    unscored = max(run["unscored"] for run in part["runs"])
    left_out = f"; {unscored} more have an unreadable reference" if unscored else ""
    return f"{part['title']}: `{part['metric']}`, questions of {place}{left_out}."


def _unlike(name: str, results: Results) -> str:
    """Return in which respects a benchmark of the paper was measured in another way, as far as is known."""
    if name not in FIVE:
        return ""
    part, benchmark = results["benchmarks"][name], BENCHMARKS[name]
    found = [
        (part["questions"] != benchmark.questions, "other questions"),
        (benchmark.greedy != part["decoding"].startswith("greedy"), part["decoding"]),
        (part["scorer"].startswith("lmms-eval: judge"), "lmms-eval's judge, not the official code"),
    ]
    return ", ".join(what for differs, what in found if differs)


def _paper_notes(results: Results) -> list[str]:
    names = list(results["benchmarks"])
    if not any(name in FIVE for name in names):
        return []
    notes = [
        "The rows of the paper: VADE, arXiv 2511.18902, Table 1, average@4. By its figures, ScienceQA-IMG and ChartQA "
        "are one greedy run, scored by lmms-eval. MathVista, MathVerse and MathVision are four runs, scored by the "
        "benchmarks' official code with a judge. Other settings are not known."
    ]
    unlike = {results["benchmarks"][name]["title"]: _unlike(name, results) for name in names}
    if told := [f"{title} ({why})" for title, why in unlike.items() if why]:
        notes.append(f"Not measured as in the paper: {'; '.join(told)}.")
    if len(names) == 1:
        return notes
    if not set(names) <= set(FIVE):
        notes.append(
            "The average includes benchmarks that the paper does not have, so the paper's rows have no average."
        )
    elif set(names) != set(FIVE):
        notes.append(
            f"All averages, also the paper's, are over {', '.join(names)}, not over the paper's {len(FIVE)} "
            "benchmarks."
        )
    return notes
