"""The report of a run, in its output directory: `vade_summary.json`, `vade_report.html` and `vade_report.png`."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from trl_vade.files import save_whole

from .page import write_page
from .record import Run, read_run
from .summary import summarise

logger = logging.getLogger(__name__)  # not accelerate's, which needs torch

SUMMARY_FILE = "vade_summary.json"
REPORT_FILE = "vade_report.png"
PAGE_FILE = "vade_report.html"


def write_report(output_dir: str | os.PathLike[str], run: Run | None = None) -> dict[str, Any]:
    """Write `vade_summary.json`, `vade_report.html` and `vade_report.png` into `output_dir` and return the summary.

    Without matplotlib (`pip install trl-vade[report]`) picture and curves are left out, and the log says so.

    Args:
        output_dir: of a run, which may be going on.
        run: the run, where the caller has it; else it is read from `output_dir`.

    Raises:
        VADEError: what `read_run` raises.
    """
    folder = Path(output_dir)
    run = run or read_run(folder)
    summary = summarise(run)
    lines = [f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in summary.items()]
    save_whole(folder / SUMMARY_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    panels = {}
    try:
        from .panels import draw_report, svg_panels
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        logger.warning('The report has no picture, which needs matplotlib: pip install "trl-vade[report]".')
    else:
        draw_report(run, folder / REPORT_FILE)
        panels = svg_panels(run)
    write_page(folder / PAGE_FILE, run, summary, panels)
    return summary
