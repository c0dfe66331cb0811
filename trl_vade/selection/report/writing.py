"""The report of a run in its output directory: `vade_summary.json`, `vade_report.html` and `vade_report.png`."""

import base64
import json
import logging
import math
import os
import statistics
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Template

from trl_vade.files import save_whole

from .record import SHOWN, Run, pass_rates, read_run
from .summary import percent, summarise, summary_rows, verdict

logger = logging.getLogger(__name__)  # not accelerate's, which needs torch

SUMMARY_FILE = "vade_summary.json"
REPORT_FILE = "vade_report.png"
PAGE_FILE = "vade_report.html"
CLOSE, MANY_CLIPPED = 0.1, 0.2  # of the predicted and realised ratio, for trust in the belief; of cut answers
MOST_GROUPS = 40  # of a row, as bars
LISTS = {  # what they say of pass rates, and of spreads
    "hardest": ("The hardest rows, by the pass rate that the run believes in", "The rows whose rewards differ least"),
    "easiest": ("The easiest rows", "The rows whose rewards differ most"),
}


def write_report(output_dir: str | os.PathLike[str], run: Run | None = None) -> dict[str, Any]:
    """Write summary, page and picture of a run, by default of `read_run`, into `output_dir`; return the summary.

    Without matplotlib picture and curves are left out, and the log says so.
    """
    folder = Path(output_dir)
    run = run or read_run(folder)
    summary = summarise(run)
    save_whole(folder / SUMMARY_FILE, f"{json.dumps(summary, indent=1, allow_nan=False)}\n".encode())
    panels: dict[str, bytes] = {}
    if find_spec("matplotlib") is None:
        logger.warning('The report has no picture, which needs matplotlib: pip install "trl-vade[report]".')
    else:
        from .panels import draw_report

        panels = draw_report(run, folder / REPORT_FILE)
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    page = Template(template, autoescape=True, trim_blocks=True, lstrip_blocks=True).render(
        run=run,
        panels={name: base64.b64encode(svg).decode() for name, svg in panels.items()},
        **{"verdict": verdict(summary), "health": health(run), "figures": summary_rows(summary)},
        **{"lists": _lists(run), "most_groups": MOST_GROUPS, "percent": percent, "words": _words},
    )
    save_whole(folder / PAGE_FILE, page.encode())
    return summary


def health(run: Run) -> list[tuple[str, str, str]]:
    """Return what tells whether a run went well: name, value, and a remark or an empty text."""
    predicted, realised = (_last(run, f"vade/{name}_ratio") for name in ("predicted_effective", "effective_gradient"))
    clipped, brier, seen = (_last(run, name) for name in ("completions/clipped_ratio", "vade/brier", "vade/coverage"))
    close = predicted is not None and realised is not None and abs(predicted - realised) < CLOSE
    norms, outages = _values(run, "grad_norm"), sum(entry.get("vade/outage", 0) > 0 for entry in run.history)
    rates = pass_rates(run.selections[-max(len(run.selections) // 4, 1) :])
    extremes = f"{percent((rates < 0.1).mean())}, {percent((rates > 0.9).mean())}"
    many = "many: raise max_completion_length" if (clipped or 0) > MANY_CLIPPED else ""
    trust = "the belief can be trusted" if close else "the belief is not sure yet"
    return [
        ("useful groups, predicted and realised", f"{percent(predicted)}, {percent(realised)}", trust),
        ("groups with under 10 %, over 90 % right answers", extremes, ""),
        ("Brier score", "-" if brier is None else f"{brier:.3f}", "0 is best; a guess of one half gets 0.25"),
        ("rows seen", percent(seen), ""),
        ("answers that were cut at the longest length", percent(clipped), many),
        ("largest gradient norm of the run", f"{max(norms):.3g}" if norms else "-", ""),
        ("logging steps with a reward outage", f"{outages}", "see the warnings in the log" if outages else ""),
    ]


def _values(run: Run, name: str) -> list[float]:
    return [entry[name] for entry in run.history if math.isfinite(entry.get(name, math.nan))]


def _last(run: Run, name: str) -> float | None:
    values = _values(run, name)
    return statistics.fmean(values[-max(len(values) // 4, 1) :]) if values else None


def _lists(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each list with their groups over time, as (batch, share of right answers) pairs."""
    lists = {LISTS[name][run.has_spreads]: run.rows.get(name, [])[:SHOWN] for name in LISTS}
    groups: dict[int, list[tuple[int, float]]] = {row: [] for rows in lists.values() for row in rows}
    for line in run.selections:
        for row, successes, trials in zip(line["sample_index"], line["successes"], line["trials"], strict=True):
            if row in groups and trials:
                groups[row].append((line["step"], successes / trials))
    about = {row: {**run.rows["rows"][str(row)], "groups": each[-MOST_GROUPS:]} for row, each in groups.items()}
    return {title: [about[row] for row in rows] for title, rows in lists.items() if rows}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    return "; ".join(map(_words, value)) if isinstance(value, list) else f"{value}"
