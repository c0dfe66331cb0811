"""One posterior looked at: its facts, how many rows have which pass rate, and the rows of both ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.checks import check_whole_number
from trl_vade.errors import SnapshotCorruptError
from trl_vade.hub.card_parts import one_line
from trl_vade.hub.posteriors.table import PosteriorTable, arrow_of, bin_counts, known_facts, text_histogram
from trl_vade.selection.report.record import ROWS_FILE, read_kept

from .commands import print_columns, print_table

COLUMNS = {
    **{"sample_id": "row", "question": "question", "index": "index", "pass_rate": "pass rate\n(0 to 1)"},
    **{"alpha": "alpha\n(right)", "beta": "beta\n(wrong)", "visits": "visits\n(steps)", "last_step": "last\nstep"},
}
"""The head of each column. Steps are those of the posterior, one a generation batch."""
MOST_ROWS = 10**8  # of an exported column


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


def both_ends(table: PosteriorTable, count: int, source: str) -> tuple[list[Any], list[Any]]:
    """Return the rows with the lowest and the highest pass rates, `count` in all and none twice.

    Ties go by `sample_id`. `source` may be a run's folder or checkpoint, which has ids and questions of rows.
    """
    rows = arrow_of(table).sort_by([("pass_rate", "ascending"), ("sample_id", "ascending")])
    hidden = max(len(table) - count, 0)
    half = (len(table) - hidden + 1) // 2
    first, last = rows[:half].to_pylist(), rows[half + hidden :].to_pylist()
    kept = read_kept(Path(source, ROWS_FILE)) or read_kept(Path(source).parent / ROWS_FILE)
    texts = {about["key"]: about for about in kept.get("rows", {}).values()}
    for record in [*first, *last]:
        about = texts.get(record["sample_id"], {})
        record |= {"question": about.get("question"), "sample_id": about.get("id") or record["sample_id"]}
    return first, last


def export_rates(table: PosteriorTable, path: Path) -> None:
    """Write a Parquet file with the pass rate of each row of the training set, in its order; null without a score."""
    error, advice = SnapshotCorruptError, "The file may be a stranger's."
    size = table.metadata.get("num_samples")
    size = check_whole_number("num_samples", size, minimum=0, maximum=MOST_ROWS, advice=advice, error=error)
    rates = np.full(size, np.nan)
    rates[table.index] = table.pass_rate
    pq.write_table(pa.table({"pass_rate": pa.array(rates, from_pandas=True)}), path)


def print_posterior(table: PosteriorTable, summary: Any, first: list[Any], last: list[Any]) -> None:
    """Print the facts, the histogram, and the rows of `both_ends`."""
    facts = [(name, one_line(value, 120)) for name, value in known_facts(table).items()]
    total, size = summary["num_samples"], len(table)
    facts.append(("rows", f"{size:,}" + (f" of {total:,}, the others never scored" if total > size else "")))
    if size:
        facts.append(("pass rate", f"{summary['mean_pass_rate']:.3f} (median {summary['median_pass_rate']:.3f})"))
        facts.append(("visits of a row", f"{summary['mean_visits']:.1f} (at most {summary['most_visits']:,})"))
    print_table("The posterior", facts)
    print("How many rows have which pass rate\n" + text_histogram(table))
    if not first:
        return
    question = any(record["question"] for record in [*first, *last])
    names = [name for name in COLUMNS if question or name != "question"]
    lines, end = ([[_cell(record[name]) for name in names] for record in part] for part in (first, last))
    if hidden := size - len(lines) - len(end):
        lines.append([f"... {hidden:,} more", *["..."] * (len(names) - 1)])
    heads = [COLUMNS[name] for name in names]
    print_columns("The rows, from the lowest pass rate to the highest", heads, lines + end, text=1 + question)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else one_line(value)
