"""What a run did: its figures as data, and as a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .record import Run
from .verdict import with_error


def summarise(run: Run) -> dict[str, Any]:
    """Return the end-of-run table as data.

    Seconds are wall time. In a run that goes on or was killed they are those until the newest checkpoint, at the step
    `seconds_until_step`. The completions trained on are those of the newest log entry, None where the run did not log
    them. The ratios of an even draw are estimates, see `even_draw`.
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
