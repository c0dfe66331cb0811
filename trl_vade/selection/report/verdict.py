"""What a run shows, in two sentences."""

from collections.abc import Mapping
from typing import Any

from .validation import change_of, with_error


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence about the useful groups and one about the validation, from a `summarise` result."""
    return [_of_groups(summary), _of_validation(summary["validation"])]


def _of_groups(summary: Mapping[str, Any]) -> str:
    first, last = (summary[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last"))
    even = summary["even_draw_ratio_last_quarter"]
    if first is None or last is None:
        return "It is not known how many groups were useful, because completions had no reward."
    found = f"{100 * last:.0f} % of the groups had right and wrong answers in the last quarter of the run, "
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
