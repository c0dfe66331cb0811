"""What a run shows, in two sentences."""

from collections.abc import Mapping
from typing import Any


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence about the useful groups and one about the validation, from a `summarise` result."""
    return [_of_groups(summary), _of_validation(summary["validation"])]


def _of_groups(summary: Mapping[str, Any]) -> str:
    first, last = (summary[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last"))
    even = summary["even_draw_ratio_last_quarter"]
    if first is None or last is None:
        return "It is not known how many groups were useful, because completions had no reward."
    found = f"{last:.0%} of the groups had right and wrong answers in the last quarter of the run, {first:.0%} in the "
    baseline = "" if even is None else f"; an even draw would give about {even:.0%} (estimate)"
    return f"{found}first{baseline}."


def _of_validation(evaluations: list[dict[str, Any]]) -> str:
    if not evaluations:
        return "The run had no validation, so its reward alone does not say whether the policy got better."
    first, last = evaluations[0], evaluations[-1]
    if len(evaluations) == 1:
        return f"The validation score is {with_error(last)} at step {last['step']}."
    change, noise = change_of(evaluations)
    sure = "its error is not known"
    if noise is not None:
        sure = "within noise" if abs(change) <= noise else "more than noise"
    way = "rose" if change > 0 else "fell" if change < 0 else "stayed"
    scores = f"from {with_error(first)} to {with_error(last)}"
    return f"The validation score {way} {scores}: {100 * change:+.1f} points, {sure}."


def change_of(evaluations: list[dict[str, Any]]) -> tuple[float, float | None]:
    """Return the change from the first to the last score, and two standard errors of it, None if not known."""
    first, last = evaluations[0], evaluations[-1]
    errors = [first["standard_error"], last["standard_error"]]
    noise = None if None in errors else 2 * sum(error**2 for error in errors) ** 0.5
    return last["score"] - first["score"], noise


def with_error(evaluation: Mapping[str, Any]) -> str:
    """Return a score in percent with its standard error, where that is known."""
    error = evaluation["standard_error"]
    return (
        f"{100 * evaluation['score']:.1f} %"
        if error is None
        else f"{100 * evaluation['score']:.1f} ±{100 * error:.1f} %"
    )
