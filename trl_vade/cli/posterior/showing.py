"""One posterior looked at (its facts, how many rows have which pass rate, the rows of both ends), or two compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.hub.posteriors.facts import bin_counts, text_histogram
from trl_vade.hub.posteriors.table import PLACE, PosteriorTable, arrow_of
from trl_vade.selection.report.record import ROWS_FILE, read_kept

from ..tables import print_columns, print_table

FACTS = (
    *("base_model", "model_repo", "dataset", "dataset_revision", "sampler", "preset", "success_reward"),
    *("success_threshold", "num_generations", "posterior_init", "warm_start_discount"),
    *("global_step", "generation_batches", "rollouts"),
)
ROUNDING = 1e-9  # differences of pass rates are taken as equal to a threshold that they miss by less
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
    known = [(name, cut(str(table.metadata[name]), 120)) for name in FACTS if table.metadata.get(name) is not None]
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


def compare(a: PosteriorTable, b: PosteriorTable, threshold: float = 0.25) -> dict[str, Any]:
    """Join two posteriors on `sample_id`, and return what differs as JSON values.

    A checkpoint names its rows by hashes of their ids, and a published posterior by the ids: where one of the two has
    hashes only, the other's ids, which may look like hashes, are hashed as `row_keys.sample_keys` does it.
    A row whose pass rate changes by the `threshold`, in (0, 1], or more counts as having become easy or hard. The
    largest changes come first. Facts that only one of the two says of its run are named apart: a checkpoint says less.
    """
    rows = sorted(_joined(a, b), key=lambda row: row["change"])
    facts_a, facts_b = _facts(a), _facts(b)
    differing = {name: [value, facts_b[name]] for name, value in facts_a.items() if facts_b.get(name, value) != value}
    return {
        "in_both": len(rows),
        "only_in_a": len(a) - len(rows),
        "only_in_b": len(b) - len(rows),
        "mean_change": float(np.mean([row["change"] for row in rows])) if rows else None,
        "correlation": _correlation([row["before"] for row in rows], [row["after"] for row in rows]),
        "threshold": threshold,
        "became_easy": [row for row in reversed(rows) if row["change"] >= threshold - ROUNDING],
        "became_hard": [row for row in rows if row["change"] <= ROUNDING - threshold],
        "differing_facts": differing,
        "facts_only_in_a": [name for name in facts_a if name not in facts_b],
        "facts_only_in_b": [name for name in facts_b if name not in facts_a],
    }


def _joined(a: PosteriorTable, b: PosteriorTable) -> list[dict[str, Any]]:
    """Return the rows that both have. The id stands in place of a hash, and b's task in place of a's."""
    places = {name: right for right, names in enumerate(_names(b, beside=a)) for name in names}
    rows = []
    for left, names in enumerate(_names(a, beside=b)):
        right = next((places[name] for name in names if name in places), None)
        if right is not None:
            before, after = float(a.pass_rate[left]), float(b.pass_rate[right])
            row = {"sample_id": a.sample_id[left] if b.sample_id[right] in names else b.sample_id[right]}
            row["task"] = (b.task[right] if b.task else None) or (a.task[left] if a.task else None)
            rows.append(row | {"before": before, "after": after, "change": after - before})
    return rows


def _correlation(before: list[float], after: list[float]) -> float | None:
    """Return Pearson's correlation; None where one of the two is the same in all rows."""
    constant = len(before) < 2 or np.ptp(before) == 0 or np.ptp(after) == 0
    return None if constant else float(np.corrcoef(before, after)[0, 1])


def _names(table: PosteriorTable, beside: PosteriorTable) -> list[tuple[str, ...]]:
    """Return all names by which each row may be called in `beside`, its own first."""
    from trl_vade.data.row_names import is_key_text, keys_of_ids  # datasets and torch, by way of `data`

    # All rows are named by hashes, as those of a checkpoint, or by ids that look like these.
    by_keys, other_by_keys = (len(one) and all(map(is_key_text, one.sample_id)) for one in (table, beside))
    # What looks like hashes is ids where `beside` does not have it, but for the one row that may have no id.
    shared = by_keys and len(set(table.sample_id) & set(beside.sample_id)) > 1
    keys = keys_of_ids(table.sample_id) if other_by_keys and not shared else [()] * len(table)
    return [(name, *more) for name, more in zip(table.sample_id, keys, strict=True)]


def _facts(table: PosteriorTable) -> dict[str, Any]:
    """Return the facts of the run that another table may contradict."""
    left_out = (*PLACE, "format_version", "recipe")
    return {name: value for name, value in table.metadata.items() if value is not None and name not in left_out}


def print_difference(found: Mapping[str, Any], rows: int) -> None:
    """Print the counts, the facts that differ, and at most `rows` of the rows that became easy, and hard."""
    lines = [("rows in both", f"{found['in_both']:,}")]
    lines += [(f"only in {one}", f"{found[f'only_in_{one.lower()}']:,}") for one in "AB"]
    lines += [(f"became {word}", f"{len(found[f'became_{word}']):,}") for word in ("easy", "hard")]
    lines.append(("mean change of the pass rate", shown(found["mean_change"])))
    lines.append(("correlation of the pass rates", shown(found["correlation"])))
    alone = {one: found[f"facts_only_in_{one.lower()}"] for one in "AB"}
    lines += [(f"facts known of {one} alone", ", ".join(names)) for one, names in alone.items() if names]
    print_table(f"From A to B (by {found['threshold']:g} or more)", lines)
    if not found["in_both"]:
        print(
            "No row is in both. Either these are other data sets, or the rows are named\n"
            "differently: by `id` where that column tells all apart, else by their content."
        )
    facts = [[name, *(cut(str(value), 60) for value in both)] for name, both in found["differing_facts"].items()]
    if facts:
        print_columns("What differs between the runs", ["", "A", "B"], facts, text=3)
    for word in ("easy", "hard"):
        every = found[f"became_{word}"]
        columns = ["sample_id", *(["task"] if any(row["task"] for row in every) else []), "before", "after", "change"]
        if every and rows:
            title = f"Became {word}" + (", the first" if len(every) > rows else "")
            print_columns(title, ["row", *columns[1:]], cells(every[:rows], columns), text=len(columns) - 3)


def cells(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table; long texts are cut."""
    return [[cut(shown(record.get(name)), MOST_SIGNS.get(name)) for name in columns] for record in records]


def cut(text: str, most: int | None) -> str:
    """Return at most `most` characters of the text."""
    return text if most is None or len(text) <= most else f"{text[: most - 3]}..."


def shown(value: Any) -> str:
    """Return a value as text; what is not known is a dash."""
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
