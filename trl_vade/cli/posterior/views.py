"""Posteriors looked at: one by itself, and two beside each other. Data; `commands` prints it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.checks import FloatArray, IntArray
from trl_vade.data.row_names import is_key_text
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.hub.posteriors.histogram import bin_counts
from trl_vade.hub.posteriors.table import PLACE, PosteriorTable
from trl_vade.selection.report.record import ROWS_FILE, read_kept

COLUMNS = ("sample_id", "index", "task", "alpha", "beta", "visits", "pass_rate", "last_step")
ROUNDING = 1e-9  # differences of pass rates are taken as equal to a threshold that they miss by less


def summarise_posterior(table: PosteriorTable) -> dict[str, Any]:
    """Return what a posterior comes to, as JSON values; `histogram` is `bin_counts`, and means of no rows are None."""
    rates = table.pass_rate
    return {
        "rows": len(table),
        "num_samples": table.metadata.get("num_samples"),
        "mean_pass_rate": float(rates.mean()) if len(table) else None,
        "median_pass_rate": float(np.median(rates)) if len(table) else None,
        "mean_visits": float(table.visits.mean()) if len(table) else None,
        "most_visits": int(table.visits.max()) if len(table) else None,
        "histogram": bin_counts(rates).tolist(),
    }


def order_by(table: PosteriorTable, column: str) -> IntArray:
    """Return (V,) places of the rows in ascending order of a column of numbers or names; ties go by `sample_id`."""
    values = getattr(table, column)
    return np.array(sorted(range(len(table)), key=lambda row: (values[row], table.sample_id[row])), dtype=np.int64)


def both_ends(order: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return the first and the last places of an order, `count` in all and none twice."""
    count = min(count, len(order))
    first = order[: count - count // 2]
    return first, order[len(order) - count // 2 :]


def row_records(
    table: PosteriorTable, rows: Iterable[int], texts: Mapping[str, Mapping[str, str]] | None = None
) -> list[dict[str, Any]]:
    """Return rows as JSON values. What is not known is None; `task` is left out where no row's is known.

    `texts` are `kept_texts`: a row that is named by its key gets its id and its question from them.
    """
    records = [
        {name: _value(table, name, int(row)) for name in COLUMNS if name != "task" or table.task is not None}
        for row in rows
    ]
    for record in records if texts else []:
        about = texts.get(record["sample_id"], {})
        record["question"] = about.get("question")
        record["sample_id"] = about.get("id") or record["sample_id"]
    return records


def kept_texts(source: str) -> dict[str, dict[str, str]]:
    """Return id and question of the rows that a run keeps texts of, by their keys; `source` may be a checkpoint."""
    folder = Path(source)
    kept = next((kept for place in (folder, folder.parent) if (kept := read_kept(place / ROWS_FILE))), {})
    rows = kept.get("rows")
    texts = {}
    for about in rows.values() if isinstance(rows, dict) else ():
        if isinstance(about, dict) and isinstance(about.get("key"), str):
            texts[about["key"]] = {name: str(about[name]) for name in ("id", "question") if name in about}
    return texts


def _value(table: PosteriorTable, name: str, row: int) -> Any:
    value = getattr(table, name)[row]
    value = value.item() if isinstance(value, np.generic) else value
    unknown = (name == "index" and value < 0) or (name == "last_step" and value == 0)
    return None if unknown else value


@dataclass(frozen=True, eq=False)
class Difference:
    """Two posteriors, joined on their rows. The rows that both have are in ascending order of their change."""

    only_a: int
    only_b: int
    sample_id: list[str]  # M, of the rows in both; the id where one of the two has a hash in its place
    task: list[str | None]  # M; b's where it has any, else a's
    before: FloatArray  # (M,) pass rates in a
    after: FloatArray  # (M,) in b
    threshold: float
    facts: dict[str, tuple[Any, Any]]  # what both say of the runs, where it differs: (a's, b's)
    facts_only_a: list[str]  # names of what only a says of its run; a checkpoint says less than a published posterior
    facts_only_b: list[str]

    @property
    def change(self) -> FloatArray:
        """(M,) after - before."""
        return self.after - self.before

    @property
    def became_easy(self) -> IntArray:
        """Places of the rows whose pass rate rose by the threshold or more, the largest rise first."""
        return np.flatnonzero(self.change >= self.threshold - ROUNDING)[::-1]

    @property
    def became_hard(self) -> IntArray:
        """Places of the rows whose pass rate fell by the threshold or more, the largest fall first."""
        return np.flatnonzero(self.change <= -self.threshold + ROUNDING)

    @property
    def correlation(self) -> float | None:
        """Pearson's, of the pass rates before and after; None where one of them is the same in all rows."""
        if len(self.before) < 2 or np.ptp(self.before) == 0 or np.ptp(self.after) == 0:
            return None
        return float(np.corrcoef(self.before, self.after)[0, 1])

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        mean = float(self.change.mean()) if len(self.before) else None
        columns = (self.sample_id, self.task, self.before.tolist(), self.after.tolist(), self.change.tolist())
        names = ("sample_id", "task", "before", "after", "change")
        records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        return {
            "in_both": len(self.before),
            "only_in_a": self.only_a,
            "only_in_b": self.only_b,
            "mean_change": mean,
            "correlation": self.correlation,
            "threshold": self.threshold,
            "became_easy": [records[row] for row in self.became_easy],
            "became_hard": [records[row] for row in self.became_hard],
            "differing_facts": {name: list(values) for name, values in self.facts.items()},
            "facts_only_in_a": self.facts_only_a,
            "facts_only_in_b": self.facts_only_b,
        }


def compare(a: PosteriorTable, b: PosteriorTable, threshold: float = 0.25) -> Difference:
    """Join two posteriors on `sample_id`.

    A checkpoint names its rows by hashes of their ids, and a published posterior by the ids: where one of the two has
    hashes only, the other's ids, which may look like hashes, are hashed as `row_keys.sample_keys` does it.
    A row whose pass rate changes by the `threshold`, in (0, 1], or more counts as having become easy or hard.
    """
    if isinstance(threshold, bool) or not 0 < threshold <= 1:
        raise ConfigurationError(
            f"threshold is {abbreviated(threshold)}; it must be in (0, 1]: pass rates cannot change by more, and "
            "every row changes by at least 0."
        )
    names = _names(a, beside=b)
    in_a, in_b = _pairs(names, _names(b, beside=a))
    order = np.argsort(b.pass_rate[in_b] - a.pass_rate[in_a], kind="stable")
    in_a, in_b = in_a[order], in_b[order]
    tasks = [
        (b.task[right] if b.task else None) or (a.task[left] if a.task else None)
        for left, right in zip(in_a, in_b, strict=True)
    ]
    facts_a, facts_b = _facts(a), _facts(b)
    return Difference(
        only_a=len(a) - len(in_a),
        only_b=len(b) - len(in_b),
        sample_id=[
            a.sample_id[left] if b.sample_id[right] in names[left] else b.sample_id[right]
            for left, right in zip(in_a, in_b, strict=True)
        ],
        task=tasks,
        before=a.pass_rate[in_a],
        after=b.pass_rate[in_b],
        threshold=float(threshold),
        facts={name: (value, facts_b[name]) for name, value in facts_a.items() if facts_b.get(name, value) != value},
        facts_only_a=[name for name in facts_a if name not in facts_b],
        facts_only_b=[name for name in facts_b if name not in facts_a],
    )


def named_by_keys(table: PosteriorTable) -> bool:
    """Whether all rows are named by hashes, as those of a checkpoint, or by ids that look like these."""
    return len(table) > 0 and all(map(is_key_text, table.sample_id))


def _pairs(a: list[tuple[str, ...]], b: list[tuple[str, ...]]) -> tuple[IntArray, IntArray]:
    """(M,) and (M,): places of the same row in both, by the names of the rows."""
    places = {name: row for row, names in enumerate(b) for name in names}
    found = [next((places[name] for name in names if name in places), -1) for names in a]
    in_b = np.array(found, dtype=np.int64)
    in_a = np.flatnonzero(in_b >= 0)
    return in_a, in_b[in_a]


def _names(table: PosteriorTable, beside: PosteriorTable) -> list[tuple[str, ...]]:
    """All names by which each row may be called in `beside`, its own first."""
    names: list[tuple[str, ...]] = [(name,) for name in table.sample_id]
    if not named_by_keys(beside):
        return names
    # What looks like hashes is ids where `beside` does not have it, but for the one row that may have no id.
    if named_by_keys(table) and len(set(table.sample_id) & set(beside.sample_id)) > 1:
        return names
    from trl_vade.data.row_names import keys_of_ids  # torch, by way of `data`

    return [(*name, *keys) for name, keys in zip(names, keys_of_ids(table.sample_id), strict=True)]


def _facts(table: PosteriorTable) -> dict[str, Any]:
    """Return the facts of the run that another table may contradict."""
    left_out = (*PLACE, "format_version", "recipe")
    return {name: value for name, value in table.metadata.items() if value is not None and name not in left_out}
