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

FORMAT = 1
"""Version of the format of `results.json`."""
PAPER_JUDGE = "Qwen2.5-72B-Instruct"
_AGAIN = "Run the evaluation's command again: finished runs are kept."
_Types = Mapping[str, tuple[type, ...]]
_NUMBER, _TEXT, _NONE = (int, float), (str,), (type(None),)
_TOP: _Types = {
    **dict.fromkeys(("backend", "command", "started", "finished"), _TEXT),
    **dict.fromkeys(("model", "generation", "data", "versions", "benchmarks", "average"), (dict,)),
    **dict.fromkeys(("system_prompt", "instruction"), (str, *_NONE)),
    **{"format": (int,), "seeds": (list,), "limit": (int, *_NONE), "judge": (dict, *_NONE)},
}
_MODEL: _Types = {"name": _TEXT, "revision": (str, *_NONE), "fingerprint": _TEXT}
_GENERATION: _Types = {"temperature": _NUMBER, "top_p": _NUMBER, "top_k": (int,), "max_new_tokens": (int,)}
_JUDGE: _Types = {"model": _TEXT, "url": _TEXT}
_MEAN: _Types = {"mean": _NUMBER, "stderr": (*_NUMBER, *_NONE)}
_AVERAGE: _Types = {"of": (list,), **_MEAN}
_BENCHMARK: _Types = {
    **dict.fromkeys(("title", "task", "metric"), _TEXT),
    "dataset": (str, *_NONE),
    "questions": (int,),
    **_MEAN,
    "identical_runs": (bool,),
    "runs": (list,),
}
_RUN: _Types = {
    **dict.fromkeys(("seed", "questions", "unscored", "unreadable_verdicts"), (int,)),
    "score": _NUMBER,
    "value": (*_NUMBER, *_NONE),
    "results_file": _TEXT,
}


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
        _check(what, content, _TOP)
        _check(f"{what}, model", content["model"], _MODEL)
        _check(f"{what}, generation", content["generation"], _GENERATION)
        if content["judge"] is not None:
            _check(f"{what}, judge", content["judge"], _JUDGE)
        _check(f"{what}, average", content["average"], _AVERAGE)
        for name, benchmark in content["benchmarks"].items():
            _check(f"{what}, {name}", benchmark, _BENCHMARK)
            for run in benchmark["runs"]:
                _check(f"{what}, a run of {name}", run, _RUN)
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


def _check(what: str, part: Any, types: _Types) -> None:
    for name, expected in types.items():
        value = part.get(name, "not there") if isinstance(part, dict) else part
        sound = isinstance(part, dict) and name in part and isinstance(value, expected)
        if isinstance(value, bool):
            sound = sound and bool in expected  # a bool is an int, too
        if isinstance(value, float):
            sound = sound and math.isfinite(value)
        if not sound:
            kinds = " or ".join(kind.__name__ for kind in expected)
            raise EvaluationError(f"{what}: {name!r} is {abbreviated(value)}; it must be of type {kinds}. {_AGAIN}")


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
