"""What `views` makes of posteriors, on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from trl_vade.hub.posteriors.histogram import text_histogram
from trl_vade.hub.posteriors.table import PosteriorTable

from ..tables import print_columns, print_table
from .views import Difference

FACTS = (
    *("base_model", "model_repo", "dataset", "dataset_revision", "sampler", "preset", "success_reward"),
    *("success_threshold", "num_generations", "posterior_init", "warm_start_discount"),
    *("global_step", "generation_batches", "rollouts"),
)
MOST_SIGNS = {"sample_id": 60, "task": 20, "question": 50}
"""Of a value in a table of rows: in 80 columns a longer one would fill a page."""

HEADS = {
    "sample_id": "row",
    "index": "index",
    "pass_rate": "pass rate\n(0 to 1)",
    "alpha": "alpha\n(right)",
    "beta": "beta\n(wrong)",
    "visits": "visits\n(steps)",
    "last_step": "last\nstep",
}
"""The heads of columns, with their units. Steps are those of the posterior, one for a generation batch."""


def print_posterior(
    table: PosteriorTable, summary: Mapping[str, Any], sort: str, first: list[Any], last: list[Any]
) -> None:
    """Print the facts, the histogram, and the rows of both ends, which are `row_records` in the order of `sort`."""
    known = [(name, _cut(str(table.metadata[name]), 120)) for name in FACTS if table.metadata.get(name) is not None]
    total = summary["num_samples"]
    of = f" of {total:,}, the others never scored" if total and total > summary["rows"] else ""
    counts = [("rows", f"{summary['rows']:,}{of}")]
    if summary["rows"]:
        counts.append(("pass rate", f"{summary['mean_pass_rate']:.3f} (median {summary['median_pass_rate']:.3f})"))
        counts.append(("visits of a row", f"{summary['mean_visits']:.1f} (at most {summary['most_visits']:,})"))
    print_table("The posterior", [*known, *counts])
    print("How many rows have which pass rate\n" + text_histogram(table))
    columns = ["sample_id", "index", "pass_rate", "alpha", "beta", "visits", "last_step"]
    if table.task is not None:
        columns.insert(1, "task")
    if any(record.get("question") for record in [*first, *last]):
        columns.insert(1, "question")
    hidden = len(table) - len(first) - len(last)
    cut = hidden > 0
    between = [[f"... {hidden:,} more", *["..."] * (len(columns) - 1)]] if cut and last else []
    lines = [*_cells(first, columns), *between, *_cells(last, columns)]
    if lines:
        head = [HEADS.get(name, name) for name in columns]
        print_columns(_title(sort, cut, bool(last)), head, lines, text=len(columns) - 6)


def _title(sort: str, cut: bool, both_ends: bool) -> str:
    if not cut:
        return "The rows, from the hardest to the easiest" if sort == "pass_rate" else f"The rows by {sort}"
    if sort == "pass_rate":
        return "The hardest rows, then the easiest" if both_ends else "The hardest row"
    return f"The rows with the lowest {sort}, then the highest" if both_ends else f"The row with the lowest {sort}"


def print_difference(found: Difference, rows: int) -> None:
    """Print the counts, the facts that differ, and at most `rows` of the rows that became easy, and hard."""
    said = found.as_json()
    print_table(f"From A to B (by {found.threshold:g} or more)", _counts(said))
    if not said["in_both"]:
        print(
            "No row is in both. Either these are other data sets, or the rows are named\n"
            "differently: by `id` where that column tells all apart, else by their content."
        )
    if found.facts:
        facts = [[name, _cut(str(before), 60), _cut(str(after), 60)] for name, (before, after) in found.facts.items()]
        print_columns("What differs between the runs", ["", "A", "B"], facts, text=3)
    columns = ["sample_id", *(["task"] if any(found.task) else []), "before", "after", "change"]
    for word in ("easy", "hard"):
        records = said[f"became_{word}"][:rows]
        if records:
            title = f"Became {word}" if len(records) == len(said[f"became_{word}"]) else f"Became {word}, the first"
            print_columns(title, ["row", *columns[1:]], _cells(records, columns), text=len(columns) - 3)


def _counts(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [("rows in both", f"{said['in_both']:,}")]
    lines += [(f"only in {one}", f"{said[f'only_in_{one.lower()}']:,}") for one in "AB"]
    lines += [(f"became {word}", f"{len(said[f'became_{word}']):,}") for word in ("easy", "hard")]
    lines.append(("mean change of the pass rate", _shown(said["mean_change"])))
    lines.append(("correlation of the pass rates", _shown(said["correlation"])))
    for one in "AB":
        if names := said[f"facts_only_in_{one.lower()}"]:
            lines.append((f"facts known of {one} alone", ", ".join(names)))
    return lines


def _cells(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    return [[_cut(_shown(record.get(name)), MOST_SIGNS.get(name)) for name in columns] for record in records]


def _cut(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else f"{text[: most - 3]}..."


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
