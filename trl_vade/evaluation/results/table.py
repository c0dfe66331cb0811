"""`results.json` of an evaluation: its checks, and its table beside the paper's."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trl_vade.errors import EvaluationError, abbreviated
from trl_vade.hub.cards import markdown_table

from ..benchmarks import FIVE, PAPER, PaperRow

FORMAT = 1  # version of the format of `results.json`
PAPER_JUDGE = "Qwen2.5-72B-Instruct"
_AGAIN = "Run the evaluation's command again: finished runs are kept."
_NUMBER = int | float
_MEAN = {"mean": _NUMBER, "stderr": _NUMBER | None}
_RUN = {
    **dict.fromkeys(("seed", "questions", "unscored", "unreadable_verdicts"), int),
    **{"score": _NUMBER, "value": _NUMBER | None, "results_file": str},
}
_BENCHMARK = {
    **dict.fromkeys(("title", "task", "metric"), str),
    **{"dataset": str | None, "questions": int, **_MEAN, "identical_runs": bool, "runs": [_RUN]},
}
_RESULTS = {
    **dict.fromkeys(("backend", "command", "started", "finished"), str),
    **dict.fromkeys(("system_prompt", "instruction"), str | None),
    **{"format": int, "seeds": list, "limit": int | None, "data": dict, "versions": dict},
    "model": {"name": str, "revision": str | None, "fingerprint": str},
    "generation": {"temperature": _NUMBER, "top_p": _NUMBER, "top_k": int, "max_new_tokens": int},
    "judge": ({"model": str, "url": str}, None),
    "benchmarks": {...: _BENCHMARK},
    "average": {"of": list, **_MEAN},
}
"""The types of the parts: a dictionary or a list of parts, `...` for every key, a tuple for one of several."""


@dataclass(frozen=True)
class Results:
    """The checked content of `results.json`; `results["seeds"]` is a part. See `read_results`, `write_results`."""

    content: Mapping[str, Any]

    @classmethod
    def checked(cls, content: Any, what: str) -> "Results":
        """Return the results, or raise `EvaluationError` about `what` for a missing key or a wrong type."""
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            found = content.get("format") if isinstance(content, dict) else content
            raise EvaluationError(
                f"{what}: its format is {abbreviated(found)}, but this release reads only {FORMAT}. Use the release "
                "of trl_vade that wrote it, or run the evaluation's command again."
            )
        _check(what, "the content", content, _RESULTS)
        for name, benchmark in content["benchmarks"].items():
            seeds = [run["seed"] for run in benchmark["runs"]]
            _check_same(f"{what}: the seeds of {name}'s runs", seeds, content["seeds"])
        _check_same(f"{what}: the benchmarks of the average", content["average"]["of"], list(content["benchmarks"]))
        return cls(content)

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def table(self) -> str:
        """Return a Markdown table with this model's row, the paper's rows, and notes about the figures."""
        benchmarks, average = self["benchmarks"], self["average"]
        whole = set(average["of"]) == set(FIVE)
        head = ["Model", *(benchmark["title"] for benchmark in benchmarks.values())]
        head.append("Average" if whole else f"Average of these {len(average['of'])}")
        rows = [[self["model"]["name"], *map(_with_error, benchmarks.values()), _with_error(average)]]
        rows += [_paper_cells(row, list(benchmarks)) for row in _paper_rows(self)]
        if len(benchmarks) == 1:  # a single benchmark is its own average
            head, rows = head[:-1], [row[:-1] for row in rows]
        return "\n".join([markdown_table(head, rows), "", *(f"* {line}" for line in _notes(self))])


def read_results(output: Path) -> Results:
    """Read the `results.json` of the output directory `output` and check it.

    Raises:
        EvaluationError: the file is missing, or `write_results` of this release did not write it.
        OSError: the file exists but cannot be read.
    """
    path = output / "results.json"
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise EvaluationError(f"{path} is missing; it is written after the last run. {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise EvaluationError(
            f"{path} is not complete JSON ({error}). Another program changed it. {_AGAIN}"
        ) from error
    return Results.checked(content, str(path))


def _check(what: str, name: Any, value: Any, expected: Any) -> None:
    """Raise `EvaluationError` about `what` unless the value under `name` is of the expected types; see `_RESULTS`."""
    if isinstance(expected, tuple):
        expected = type(None) if value is None else expected[0]
    kind = type(expected) if isinstance(expected, dict | list) else expected
    sound = isinstance(value, kind) and (type(value) is not bool or kind is bool)  # a bool is an int, too
    if not sound or (isinstance(value, float) and not math.isfinite(value)):
        raise EvaluationError(
            f"{what}: {name!r} is {'missing' if value is ... else abbreviated(value)}; it must be of type "
            f"{getattr(kind, '__name__', kind)}. {_AGAIN}"
        )
    if isinstance(expected, list):
        for part in value:
            _check(what, name, part, expected[0])
    elif isinstance(expected, dict):
        for key, inner in expected.items():
            for one in value if key is ... else [key]:
                _check(f"{what}, {name}", one, value.get(one, ...), inner)


def _check_same(what: str, found: Sequence[Any], expected: Sequence[Any]) -> None:
    if found != expected or not found:
        raise EvaluationError(
            f"{what} are {abbreviated(found)}; they must be {abbreviated(expected)} and at least one. {_AGAIN}"
        )


def _with_error(part: Mapping[str, Any]) -> str:
    return f"{part['mean']:.2f}" if part["stderr"] is None else f"{part['mean']:.2f} ± {part['stderr']:.2f}"


def _paper_rows(results: Results) -> list[PaperRow]:
    """Return the paper's rows for the model's size, or all rows if its name tells no size."""
    if not any(name in FIVE for name in results["benchmarks"]):
        return []
    sizes = {size.upper() for size in re.findall(r"(?<![\d.])[37]B(?![a-z\d])", results["model"]["name"], re.I)}
    return [row for row in PAPER if not sizes or any(f"-{size}-" in row.model for size in sizes)]


def _paper_cells(row: PaperRow, names: Sequence[str]) -> list[str]:
    """Return the cells of a paper's row, "-" for a missing figure, and for an average of missing figures."""
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
        notes.append(f"Only the first {results['limit']} questions of each benchmark: not comparable with the paper.")
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
    return f"{part['title']}: `{part['metric']}` over {part['questions']} questions of {place}{left_out}."


def _paper_notes(results: Results) -> list[str]:
    names = list(results["benchmarks"])
    if not any(name in FIVE for name in names):
        return []
    notes = [
        "The rows of the paper: VADE, arXiv 2511.18902, Table 1, average@4. The paper does not say how it sampled."
    ]
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
