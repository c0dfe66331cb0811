"""`vade_report.html`: a run on one page that needs no network, for a desk or a phone, in light or dark."""

import logging
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trl_vade.files import save_whole
from trl_vade.pictures.palette import PALETTE

from .record import NOT_KNOWN, SHOWN, Run, pass_rates
from .summary import percent, summary_rows, verdict

logger = logging.getLogger(__name__)

CLOSE = 0.1
"""The largest difference between the predicted and the realised ratio that lets a reader trust the belief."""
MANY_CLIPPED = 0.2
LISTS = {
    "hardest": "The hardest rows, by the pass rate that the run believes in",
    "easiest": "The easiest rows",
}
SPREAD_LISTS = {
    "hardest": "The rows whose rewards differ least",
    "easiest": "The rows whose rewards differ most",
}
MOST_GROUPS = 40  # of a row, as bars


def write_page(path: Path, run: Run, summary: Mapping[str, Any], panels: Mapping[str, str]) -> None:
    """Write the page of the run, with its `summary` and its `panels` as SVG, to the HTML file `path`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html").render(
        name=run.name,
        title=run.title,
        palette={theme: _variables(number) for number, theme in enumerate(("light", "dark"))},
        verdict=verdict(summary),
        health=health(run),
        panels=panels,
        chosen=_readable(_chosen, run),
        lists=_readable(_lists, run),
        most_groups=MOST_GROUPS,
        figures=summary_rows(summary),
        recipe=_readable(_recipe, run),
    )
    save_whole(path, page.encode())


def _variables(theme: int) -> Markup:
    return Markup(" ".join(f"--{name}: {colours[theme]};" for name, colours in PALETTE.items()))


def _readable(part: Callable[[Run], Any], run: Run) -> Any:
    """Return a part of the page from `vade_run.json` or `vade_rows.json`; None if somebody damaged them."""
    try:
        return part(run)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        logger.warning(f"A part of the report is left out, because a file of the run is damaged ({error!r}).")
        return None


def health(run: Run) -> list[tuple[str, str, str]]:
    """Return what tells whether a run went well: name, value, and a remark or an empty text."""
    predicted, realised = (_last(run, f"vade/{name}_ratio") for name in ("predicted_effective", "effective_gradient"))
    outages = sum(entry.get("vade/outage", 0) > 0 for entry in run.history)
    clipped, brier, seen = (_last(run, name) for name in ("completions/clipped_ratio", "vade/brier", "vade/coverage"))
    norms = _values(run, "grad_norm")
    lines: list[tuple[str, str, str]] = []
    if predicted is not None and realised is not None:
        trust = "the belief can be trusted" if abs(predicted - realised) < CLOSE else "the belief is not sure yet"
        lines.append(("useful groups, predicted and realised", f"{percent(predicted)}, {percent(realised)}", trust))
    if brier is not None:
        lines.append(("Brier score of the pass rates", f"{brier:.3f}", "0 is best; a guess of one half gets 0.25"))
    if seen is not None:
        lines.append(("rows seen", percent(seen), ""))
    if clipped is not None:
        advice = "many: raise max_completion_length" if clipped > MANY_CLIPPED else ""
        lines.append(("answers that were cut at the longest length", percent(clipped), advice))
    if norms:
        lines.append(("gradient norm, median and largest", f"{statistics.median(norms):.3g}, {max(norms):.3g}", ""))
    said = "look at the log for warnings of the reward" if outages else ""
    return [*lines, ("logging steps with a reward outage", f"{outages}", said)]


def _values(run: Run, name: str) -> list[float]:
    values = (entry.get(name) for entry in run.history)
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def _last(run: Run, name: str) -> float | None:
    """Return the mean of a metric in the last quarter of its log entries."""
    values = _values(run, name)
    return statistics.fmean(values[-max(len(values) // 4, 1) :]) if values else None


def _chosen(run: Run) -> dict[str, Any]:
    """Return what was chosen in the last quarter of the run, and by task in all of it."""
    lines = run.selections
    rates, labels = pass_rates(lines[-max(len(lines) // 4, 1) :]), run.strata
    chosen = {"hopeless": percent(_share(rates < 0.1)), "mastered": percent(_share(rates > 0.9)), "tasks": []}
    chosen["figure"] = "spread of rewards" if run.has_spreads else "right answers"
    if labels is not None:
        of_group, rates = labels[np.concatenate([line["sample_index"] for line in lines])], pass_rates(lines)
        kept, total = run.rows["tasks"], sum(part["rows"] for part in run.rows["tasks"].values())
        for name in sorted({*kept} - {NOT_KNOWN}):
            known = rates[(of_group == name) & ~np.isnan(rates)]
            shares = percent(kept[name]["rows"] / total), percent(_share(of_group == name))
            chosen["tasks"].append((name, *shares, percent(float(known.mean()) if len(known) else None)))
    return chosen


def _share(mask: Any) -> float | None:
    return float(mask.mean()) if len(mask) else None


def _lists(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each list: what is known of them, their belief, and their groups over time."""
    lists = {}
    for name, title in (SPREAD_LISTS if run.has_spreads else LISTS).items():
        rows = run.rows.get(name, [])[:SHOWN]
        lists[title] = [{**_described(run, row), "groups": _groups(run, row)} for row in rows]
    return {title: rows for title, rows in lists.items() if rows}


def _described(run: Run, row: int) -> dict[str, Any]:
    about = run.rows["rows"][str(row)]
    described = {name: str(about.get(name, "")) for name in ("id", "key", "task", "question", "answer", "picture")}
    if not described["picture"].startswith("data:image/"):
        described["picture"] = ""
    belief = {"rate": percent(about["pass_rate"]), "visits": int(about["visits"])}
    return {**described, **belief, "name": described["id"] or described["key"] or f"row {row}"}


def _groups(run: Run, row: int) -> list[tuple[int, float]]:
    groups = []
    for line in run.selections:
        for place in np.flatnonzero(np.asarray(line["sample_index"]) == row):
            if line["trials"][place]:
                groups.append((line["step"], line["successes"][place] / line["trials"][place]))
    return groups[-MOST_GROUPS:]


def _recipe(run: Run) -> dict[str, Any] | None:
    """Return the command, the facts and the changed settings of a run; None without `vade_run.json`."""
    about = run.about
    if "settings" not in about:
        return None
    starts = about["starts"]
    facts = {
        "started": f"{starts[0]['time']} (UTC)",
        "resumed at": ", ".join(f"step {start['step']} ({start['time']})" for start in starts[1:]),
        "model": about["model"],
        "data set": " at ".join(filter(None, (about["dataset"], about["dataset_revision"]))),
        "rows": f"{about['rows']:,}",
        "rewards": ", ".join(about["rewards"]),
        "machine": _listed(about["machine"]),
        "versions": _listed(about["versions"]),
    }
    return {
        "command": about["command"],
        "facts": {name: value for name, value in facts.items() if value},
        "changed": {name: about["settings"].get(name) for name in about["changed_settings"]},
    }


def _listed(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
