"""What a run did, from the files in its output directory: a table, `vade_summary.json` and `vade_report.png`."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import VADEError
from trl_vade.files import save_whole

from .record import Run, read_run
from .verdict import with_error

logger = logging.getLogger(__name__)  # not accelerate's, which needs torch

SUMMARY_FILE = "vade_summary.json"
REPORT_FILE = "vade_report.png"


def summarise(run: Run) -> dict[str, Any]:
    """Return the end-of-run table as data.

    Seconds are wall time. In a run that goes on or was killed they are those until the newest checkpoint, at the step
    `seconds_until_step`. The completions
    trained on are those of the newest log entry, None where the run did not log them. The ratios of an even draw are
    estimates, see `even_draw`.
    """
    totals, last = run.snapshot.metadata["run"], run.lines[-1]
    ratios = run.effective_gradient_ratio
    quarter = max(len(ratios) // 4, 1)
    even = run.even_draw()
    first_step = run.selections[-quarter]["step"]
    return {
        "sampler": run.sampler,
        "steps": max(totals["global_step"], last["global_step"]),
        "generation_batches": len(ratios) - run.refills,
        "refills": run.refills,
        "rollouts": max(totals["rollouts"], last["rollouts"]),
        "trained_completions": run.trained[-1][1] if run.trained else None,
        "effective_gradient_ratio": [None if np.isnan(ratio) else float(ratio) for ratio in ratios],
        "effective_gradient_ratio_mean": _mean(ratios),
        "effective_gradient_ratio_first_quarter": _mean(ratios[:quarter]),
        "effective_gradient_ratio_last_quarter": _mean(ratios[-quarter:]),
        "even_draw_ratio": [[step, ratio] for step, ratio in even],
        "even_draw_ratio_last_quarter": _mean(np.array([ratio for step, ratio in even if step >= first_step])),
        "validation": run.validation,
        "seconds": run.seconds,
        "seconds_until_step": totals["global_step"],
    }


def write_report(
    output_dir: str | os.PathLike[str], strata: Sequence[str] | None = None, *, run: Run | None = None
) -> dict[str, Any]:
    """Write `vade_summary.json` and `vade_report.png` into `output_dir` and return the summary.

    Without matplotlib (`pip install trl-vade[report]`) the picture is left out, and the log says so.

    Args:
        output_dir: of a run, which may be going on.
        strata: (N,) a label of each training row (its task, say) for a panel of their shares. The summary keeps them.
            Without them the panel takes those of an earlier summary in `output_dir`, or is left out.
        run: the run, where the caller has it; else it is read from `output_dir`.

    Raises:
        VADEError: what `read_run` raises; `strata` of another length than the training set.
    """
    path = Path(output_dir) / SUMMARY_FILE
    run = run or read_run(output_dir)
    num_rows = run.snapshot.sampler_state["posterior"]["num_samples"]
    if strata is None:
        strata = _saved_strata(path, num_rows)
    elif len(strata) != num_rows:
        raise VADEError(
            f"strata has {len(strata)} labels and the run chose from {num_rows} rows; give one label a row."
        )
    summary = summarise(run)
    if strata is not None:
        chosen: dict[str, list[int]] = {}
        for row in sorted({row for line in run.lines for row in line["sample_index"]}):
            chosen.setdefault(str(strata[row]), []).append(row)
        summary["strata"] = chosen
    lines = [f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in summary.items()]
    save_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    try:
        from .picture import draw_report
        from .view import View
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        logger.warning('The report has no picture, which needs matplotlib: pip install "trl-vade[report]".')
    else:
        draw_report(View(run, strata), path.with_name(REPORT_FILE))
    return summary


def _saved_strata(path: Path, num_rows: int) -> list[str] | None:
    """Return the labels that an earlier summary keeps of the rows chosen by then; None if it has none."""
    strata = ["not known"] * num_rows
    try:
        for name, rows in json.loads(path.read_text(encoding="utf-8"))["strata"].items():
            for row in rows:
                strata[row] = name
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return strata


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the summary as (name, value) lines for a person."""
    seconds, behind = summary["seconds"], summary["seconds_until_step"] < summary["steps"]
    return [
        ("sampler", summary["sampler"]),
        *measured_rows(summary),
        *([("seconds counted until step", f"{summary['seconds_until_step']}")] if behind else []),
        ("seconds in selection", f"{seconds['selection']:.1f}"),
        ("seconds in generation and scoring", f"{seconds['generation']:.1f}"),
        ("seconds in update", f"{seconds['update']:.1f}"),
        ("seconds in validation", f"{seconds['validation']:.1f}"),
    ]


def measured_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was measured, without times, as (name, value) lines; the model card has them, too."""
    numbers = {
        "optimiser steps": summary["steps"],
        "generation batches": summary["generation_batches"],
        "refills": summary["refills"] or None,
        "rollouts": summary["rollouts"],
        "rollouts trained on": summary["trained_completions"],
    }
    shares = {
        "effective gradient ratio, first quarter": summary["effective_gradient_ratio_first_quarter"],
        "effective gradient ratio, last quarter": summary["effective_gradient_ratio_last_quarter"],
        "an even draw's ratio, last quarter (estimate)": summary["even_draw_ratio_last_quarter"],
    }
    validation = summary["validation"]
    return [
        *((name, f"{number:,}") for name, number in numbers.items() if number is not None),
        *((name, percent(share)) for name, share in shares.items()),
        *((f"validation score, step {at['step']}", with_error(at)) for at in validation[:1] + validation[1:][-1:]),
    ]


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def percent(value: float | None) -> str:
    """Return a share as text in percent, or "-" for None."""
    return "-" if value is None else f"{100 * value:.1f} %"
