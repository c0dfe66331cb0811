"""The report of a run, in its output directory: `vade_summary.json`, `vade_report.html` and `vade_report.png`."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.errors import VADEError
from trl_vade.files import save_whole

from .page import NOT_KNOWN, write_page
from .record import Run, read_run
from .summary import summarise
from .view import View

logger = logging.getLogger(__name__)  # not accelerate's, which needs torch

SUMMARY_FILE = "vade_summary.json"
REPORT_FILE = "vade_report.png"
PAGE_FILE = "vade_report.html"


def write_report(
    output_dir: str | os.PathLike[str],
    strata: Sequence[str] | None = None,
    *,
    run: Run | None = None,
) -> dict[str, Any]:
    """Write `vade_summary.json`, `vade_report.html` and `vade_report.png` into `output_dir` and return the summary.

    The summary keeps `strata`. Without them a report takes those of an earlier summary, so that a report made anew
    loses nothing. Without matplotlib (`pip install trl-vade[report]`) picture and curves are left out, and the log
    says so.

    Args:
        output_dir: of a run, which may be going on.
        strata: (N,) a label of each training row (its task, say) for a panel of their shares.
        run: the run, where the caller has it; else it is read from `output_dir`.

    Raises:
        VADEError: what `read_run` raises; `strata` of another length than the training set.
    """
    folder = Path(output_dir)
    run, earlier = run or read_run(folder), _read_summary(folder / SUMMARY_FILE)
    num_rows = run.snapshot.sampler_state["posterior"]["num_samples"]
    if strata is None:
        strata = _saved_strata(earlier, num_rows)
    elif len(strata) != num_rows:
        raise VADEError(
            f"strata has {len(strata)} labels and the run chose from {num_rows} rows; give one label a row."
        )
    summary = summarise(run)
    if strata is not None:
        chosen: dict[str, list[int]] = {}
        for row in np.unique(np.concatenate([line["sample_index"] for line in run.lines])).tolist():
            chosen.setdefault(str(strata[row]), []).append(row)
        summary["strata"] = chosen
    lines = [f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in summary.items()]
    save_whole(folder / SUMMARY_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    view = View(run, strata)
    write_page(folder / PAGE_FILE, view, summary, _draw(view, folder / REPORT_FILE))
    return summary


def _draw(view: View, path: Path) -> dict[str, str]:
    """Draw the picture, and return its panels as SVG; none without matplotlib."""
    try:
        from .picture import draw_report, svg_panels
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        logger.warning('The report has no picture, which needs matplotlib: pip install "trl-vade[report]".')
        return {}
    draw_report(view, path)
    return svg_panels(view)


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _saved_strata(earlier: dict[str, Any], num_rows: int) -> list[str] | None:
    """Return the labels that an earlier summary keeps of the rows chosen by then; None if it has none."""
    strata = [NOT_KNOWN] * num_rows
    try:
        for name, rows in earlier["strata"].items():
            for row in rows:
                strata[row] = name
    except (LookupError, TypeError, AttributeError):
        return None
    return strata
