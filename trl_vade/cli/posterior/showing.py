"""One posterior looked at: its facts, how many rows have which pass rate, and the rows of both ends."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.hub.cards import one_line
from trl_vade.hub.posteriors.facts import bin_counts, text_histogram
from trl_vade.hub.posteriors.table import PosteriorTable, arrow_of
from trl_vade.selection.report.record import ROWS_FILE, read_kept

from ..tables import print_columns, print_table

FACTS = (
    *("base_model", "model_repo", "dataset", "dataset_revision", "sampler", "preset", "success_reward"),
    *("success_threshold", "num_generations", "posterior_init", "warm_start_discount"),
    *("global_step", "generation_batches", "rollouts"),
)
MOST_SIGNS = {"sample_id": 60, "task": 20, "question": 50}
"""Of a value in a table of rows: in 80 columns a longer one would fill a page."""

HEADS = {
    "sample_id": "row",
    "question": "question",
    "task": "task",
    "index": "index",
    "pass_rate": "pass rate\n(0 to 1)",
    "alpha": "alpha\n(right)",
    "beta": "beta\n(wrong)",
    "visits": "visits\n(steps)",
    "last_step": "last\nstep",
}
"""The heads of columns, with their units. Steps are those of the posterior, one for a generation batch."""


def summarise_posterior(table: PosteriorTable) -> dict[str, Any]:
    """Return what a posterior comes to, as JSON values; `histogram` is `bin_counts`, and means of no rows are None."""
    rates, visits, some = table.pass_rate, table.visits, len(table) > 0
    return {
        "rows": len(table),
        "num_samples": table.metadata.get("num_samples"),
        "mean_pass_rate": float(rates.mean()) if some else None,
        "median_pass_rate": float(np.median(rates)) if some else None,
        "mean_visits": float(visits.mean()) if some else None,
        "most_visits": int(visits.max()) if some else None,
        "histogram": bin_counts(rates).tolist(),
    }


def both_ends(
    table: PosteriorTable, column: str, count: int, source: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows with the lowest and the highest values of `column`, `count` in all and none twice.

    Ties go by `sample_id`. `source` may be a run's folder or checkpoint, which has ids and questions of rows.
    """
    rows = arrow_of(table).sort_by([(column, "ascending"), ("sample_id", "ascending")])
    hidden = max(len(table) - count, 0)
    half = (len(table) - hidden + 1) // 2
    first, last = rows[:half].to_pylist(), rows[half + hidden :].to_pylist()
    texts = _kept_texts(source)
    for record in [*first, *last] if texts else []:
        about = texts.get(record["sample_id"], {})
        record["question"] = about.get("question")
        record["sample_id"] = about.get("id") or record["sample_id"]
    return first, last


def _kept_texts(source: str) -> dict[str, dict[str, str]]:
    """Return id and question of the rows that a run keeps texts of, by their keys."""
    folder = Path(source)
    kept = next((kept for place in (folder, folder.parent) if (kept := read_kept(place / ROWS_FILE))), {})
    rows = kept.get("rows")
    return {
        about["key"]: {name: str(about[name]) for name in ("id", "question") if name in about}
        for about in (rows.values() if isinstance(rows, dict) else ())
        if isinstance(about, dict) and isinstance(about.get("key"), str)
    }


def print_posterior(
    table: PosteriorTable, summary: Mapping[str, Any], sort: str, first: list[Any], last: list[Any]
) -> None:
    """Print the facts, the histogram, and the rows of `both_ends`."""
    known = [(name, one_line(table.metadata[name], 120)) for name in FACTS if table.metadata.get(name) is not None]
    total = summary["num_samples"]
    of = f" of {total:,}, the others never scored" if total and total > summary["rows"] else ""
    counts = [("rows", f"{summary['rows']:,}{of}")]
    if summary["rows"]:
        counts.append(("pass rate", f"{summary['mean_pass_rate']:.3f} (median {summary['median_pass_rate']:.3f})"))
        counts.append(("visits of a row", f"{summary['mean_visits']:.1f} (at most {summary['most_visits']:,})"))
    print_table("The posterior", [*known, *counts])
    print("How many rows have which pass rate\n" + text_histogram(table))
    hidden = len(table) - len(first) - len(last)
    columns = [name for name in HEADS if any(record.get(name) is not None for record in [*first, *last])]
    between = [[f"... {hidden:,} more", *["..."] * (len(columns) - 1)]] if hidden and last else []
    lines = [*cells(first, columns), *between, *cells(last, columns)]
    if lines:
        texts = len([name for name in columns if name in MOST_SIGNS])
        print_columns(
            f"The rows, from the lowest {sort} to the highest", [HEADS[name] for name in columns], lines, texts
        )


def cells(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table; long texts are cut."""
    return [[one_line(shown(record.get(name)), MOST_SIGNS.get(name, 60)) for name in columns] for record in records]


def shown(value: Any) -> str:
    """Return a value as text; what is not known is a dash."""
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
