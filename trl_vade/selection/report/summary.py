"""What a run did, from the files in its output directory: a table, `vade_summary.json` and `vade_report.png`."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.errors import SnapshotNotFoundError, VADEError

from .record import Run, read_run

SUMMARY_FILE = "vade_summary.json"
REPORT_FILE = "vade_report.png"


def summarise(run: Run) -> dict[str, Any]:
    """The end-of-run table as data; seconds are wall time, `update` is what selection and generation leave of it."""
    totals = run.snapshot.metadata["run"]
    ratios = run.effective_gradient_ratio
    quarter = max(len(ratios) // 4, 1)
    seconds = totals["seconds"]
    return {
        "sampler": run.sampler,
        "steps": totals["global_step"],
        "generation_batches": len(ratios) - run.refills,
        "refills": run.refills,
        "rollouts": totals["rollouts"],
        "effective_gradient_ratio": [None if np.isnan(ratio) else float(ratio) for ratio in ratios],
        "effective_gradient_ratio_mean": _mean(ratios),
        "effective_gradient_ratio_first_quarter": _mean(ratios[:quarter]),
        "effective_gradient_ratio_last_quarter": _mean(ratios[-quarter:]),
        "validation": run.validation,
        "seconds": {
            "selection": seconds["selection"],
            "generation": seconds["generation"],
            "update": max(seconds["step"] - seconds["selection"] - seconds["generation"], 0.0),
        },
    }


def write_report(output_dir: str | os.PathLike[str], strata: Sequence[str] | None = None) -> dict[str, Any]:
    """Write `vade_summary.json` and `vade_report.png` into `output_dir` and return the summary.

    Args:
        output_dir: of a run that called `trainer.save_model()` and `trainer.save_state()`.
        strata: (N,) a label of each training row (its task, say) for the fourth panel; without it that panel shows how
            often rows were chosen.

    Raises:
        VADEError: what `read_run` raises; `strata` of another length than the training set.
        ModuleNotFoundError: without matplotlib (`pip install trl-vade[report]`).
    """
    from .picture import draw_report  # matplotlib, which only this needs

    if not os.path.isdir(output_dir):
        raise SnapshotNotFoundError(f"{os.fspath(output_dir)} is no folder here; give the output_dir of a run.")
    run = read_run(output_dir)
    num_rows = run.snapshot.sampler_state["posterior"]["num_samples"]
    if strata is not None and len(strata) != num_rows:
        raise VADEError(
            f"strata has {len(strata)} labels and the run chose from {num_rows} rows; give one label a row."
        )
    summary = summarise(run)
    text = json.dumps(summary, indent=2, allow_nan=False)
    (Path(output_dir) / SUMMARY_FILE).write_text(text + "\n", encoding="utf-8")
    draw_report(run, Path(output_dir) / REPORT_FILE, strata)
    return summary


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as (name, value) lines for a person."""
    scores = [evaluation["score"] for evaluation in summary["validation"]]
    seconds = summary["seconds"]
    return [
        ("sampler", summary["sampler"]),
        ("optimiser steps", f"{summary['steps']}"),
        ("rollouts", f"{summary['rollouts']:,}"),
        *([("refills", f"{summary['refills']}")] if summary["refills"] else []),
        ("effective gradient ratio, first quarter", _percent(summary["effective_gradient_ratio_first_quarter"])),
        ("effective gradient ratio, last quarter", _percent(summary["effective_gradient_ratio_last_quarter"])),
        ("validation score, before", _percent(scores[0] if scores else None)),
        ("validation score, after", _percent(scores[-1] if scores else None)),
        ("seconds in selection", f"{seconds['selection']:.1f}"),
        ("seconds in generation and scoring", f"{seconds['generation']:.1f}"),
        ("seconds in update", f"{seconds['update']:.1f}"),
    ]


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
