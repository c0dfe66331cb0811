"""What a run did: its figures as data, as a table, and in two sentences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .record import Run, column
from .validation import change_of, with_error

TRAINED = "vade/trained_completions"


def summarise(run: Run) -> dict[str, Any]:
    """Return the end-of-run table as data.

    Seconds are wall time, until the optimiser step `seconds_until_step`: that of the newest log entry. The completions
    trained on are those of the newest entry, too, and None where the run did not log them. The ratios of an even draw
    are estimates; see `even_draw_ratio`.
    """
    selections, last = run.selections, run.lines[-1]
    found = {name: column(selections, f"{name}_ratio") for name in ("effective_gradient", "even_draw")}
    (seconds, until), quarter = run.seconds, max(len(selections) // 4, 1)
    return {
        "sampler": run.about.get("sampler"),
        "steps": max([last["global_step"], *(entry["step"] for entry in run.history[-1:])]),
        "generation_batches": len(run.batches),
        "refills": len(selections) - len(run.batches),
        "rollouts": last["rollouts"],
        "trained_completions": next((int(e[TRAINED]) for e in reversed(run.history) if TRAINED in e), None),
        **{
            f"{name}_ratio": [None if np.isnan(ratio) else float(ratio) for ratio in ratios]
            for name, ratios in found.items()
        },
        "effective_gradient_ratio_mean": _mean(found["effective_gradient"]),
        "effective_gradient_ratio_first_quarter": _mean(found["effective_gradient"][:quarter]),
        "effective_gradient_ratio_last_quarter": _mean(found["effective_gradient"][-quarter:]),
        "even_draw_ratio_last_quarter": _mean(found["even_draw"][-quarter:]),
        "validation": run.validation,
        "seconds": seconds,
        "seconds_until_step": until,
    }


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary as (name, value) lines for a person."""
    names = {"selection": "selection", "generation": "generation and scoring", "update": "update"}
    names |= {"validation": "validation"}
    behind = summary["seconds_until_step"] < summary["steps"]
    return [
        ("sampler", f"{summary['sampler'] or '-'}"),
        *measured_rows(summary),
        *([("seconds counted until step", f"{summary['seconds_until_step']}")] if behind else []),
        *((f"seconds in {name}", f"{summary['seconds'][phase]:.1f}") for phase, name in names.items()),
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


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence about the useful groups and one about the validation, from a `summarise` result."""
    return [_of_groups(summary), _of_validation(summary["validation"])]


def _of_groups(summary: Mapping[str, Any]) -> str:
    first, last = (summary[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last"))
    even = summary["even_draw_ratio_last_quarter"]
    if first is None or last is None:
        return "It is not known how many groups were useful, because completions had no reward."
    found = f"{100 * last:.0f} % of the groups had different rewards in the last quarter of the run, "
    found += f"{100 * first:.0f} % in the "
    baseline = "" if even is None else f"; an even draw would give about {100 * even:.0f} % (estimate)"
    return f"{found}first{baseline}."


def _of_validation(evaluations: list[dict[str, Any]]) -> str:
    if not evaluations:
        return "The run had no validation, so its reward alone does not say whether the policy got better."
    first, last = evaluations[0], evaluations[-1]
    if len(evaluations) == 1:
        return f"The validation score is {with_error(last)} at step {last['step']}."
    change, sure = change_of(first, last)
    way = "rose" if last["score"] > first["score"] else "fell" if last["score"] < first["score"] else "stayed"
    return f"The validation score {way} from {with_error(first)} to {with_error(last)}: {change}, {sure}."


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def percent(value: float | None) -> str:
    """Return a share as text in percent, or "-" for None."""
    return "-" if value is None else f"{100 * value:.1f} %"
