"""What a run did: its figures as data, as a table, in two sentences, and those of a logging step in a line."""

import math
from collections.abc import Mapping
from typing import Any

from .record import Run, column, standard_error

FEWEST_GROUPS = 30  # for a share: the error of fewer is up to 10 points

SHARES = {  # words, by metric without `vade/`
    "effective_gradient_ratio": "useful",
    "predicted_effective_ratio": "predicted",
    "selected_pass_rate": "chosen",
    "mean_pass_rate": "all",
    "coverage": "seen",
}
OTHERS = {"reward": "reward", "loss": "loss", "grad_norm": "grad", "completions/mean_length": "length"}


def summarise(run: Run) -> dict[str, Any]:
    """Return the end-of-run table as data.

    Seconds of the wall and `trained_completions` are those of the newest log entry, or None. Ratios of an even draw
    are estimates; that of the last quarter is None before most rows were seen: it would be about the prior.
    """
    selections, last = run.selections, run.lines[-1]
    realised, even = (column(selections, f"{name}_ratio") for name in ("effective_gradient", "even_draw"))
    trained = [entry["vade/trained_completions"] for entry in run.history if "vade/trained_completions" in entry]
    seen = next((entry for entry in reversed(run.history) if "vade/coverage" in entry), {})
    groups = [len(line["sample_index"]) for line in selections]
    refills, quarter = sum("refill" in line for line in selections), max(len(selections) // 4, 1)
    return {
        "sampler": run.about.get("sampler"),
        "steps": max([last["global_step"], *(entry["step"] for entry in run.history[-1:])]),
        "generation_batches": len(selections) - refills,
        "refills": refills,
        "rollouts": last["rollouts"],
        "trained_completions": int(trained[-1]) if trained else None,
        "effective_gradient_ratio": realised.tolist(),
        "even_draw_ratio": even.tolist(),
        "groups_first_quarter": sum(groups[:quarter]),
        "groups_last_quarter": sum(groups[-quarter:]),
        "effective_gradient_ratio_first_quarter": float(realised[:quarter].mean()),
        "effective_gradient_ratio_last_quarter": float(realised[-quarter:].mean()),
        "even_draw_ratio_last_quarter": float(even[-quarter:].mean()) if most_are_seen(seen) else None,
        "validation": run.validation(),
        **run.seconds,
    }


def most_are_seen(log: Mapping[str, Any]) -> bool:
    """Return whether most rows were seen at a log entry: what is estimated of all rows is then about them."""
    return log.get("vade/coverage", 0.0) > 0.5


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary as (name, value) lines for a person."""
    seconds = {f"seconds in {phase}": f"{value:.1f}" for phase, value in summary["seconds"].items()}
    until = ("seconds are counted until step", f"{summary['seconds_until_step']}")
    return [("sampler", f"{summary['sampler'] or '-'}"), *measured_rows(summary), *seconds.items(), until]


def measured_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was measured, without times, as (name, value) lines; the model card has them, too."""
    numbers = {
        **{"optimiser steps": summary["steps"], "generation batches": summary["generation_batches"]},
        **{"refills": summary["refills"] or None, "rollouts": summary["rollouts"]},
        "rollouts trained on": summary["trained_completions"],
    }
    validation = summary["validation"]
    return [
        *((name, f"{number:,}") for name, number in numbers.items() if number is not None),
        ("useful groups, first quarter", percent(summary["effective_gradient_ratio_first_quarter"])),
        ("useful groups, last quarter", percent(summary["effective_gradient_ratio_last_quarter"])),
        ("useful groups of an even draw, last quarter (estimate)", percent(summary["even_draw_ratio_last_quarter"])),
        *((f"validation score, step {at['step']}", with_error(at)) for at in validation[:1] + validation[1:][-1:]),
    ]


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence about the useful groups and one about the validation, from a `summarise` result."""
    return [_of_groups(summary), _of_validation(summary["validation"])]


def _of_groups(summary: Mapping[str, Any]) -> str:
    groups = [summary[f"groups_{part}_quarter"] for part in ("first", "last")]
    if min(groups) < FEWEST_GROUPS:
        return f"Too few groups to tell how many were useful: {groups[1]} in the last quarter of the run."
    shares = [summary[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last")]
    first, last = (
        f"{100 * share:.0f} ±{100 * (standard_error(share, number) or 0.0):.0f} %"
        for share, number in zip(shares, groups, strict=True)
    )
    even = summary["even_draw_ratio_last_quarter"]
    beside = "" if even is None else f"; an even draw would give about {100 * even:.0f} % (estimate)"
    return f"{last} of the groups were useful in the last quarter of the run, {first} in the first{beside}."


def _of_validation(evaluations: list[dict[str, Any]]) -> str:
    if not evaluations:
        return "The run had no validation, so its reward alone does not say whether the policy got better."
    first, last = evaluations[0], evaluations[-1]
    if len(evaluations) == 1:
        return f"The validation score is {with_error(last)} at step {last['step']}."
    change, sure = change_of(first, last)
    return f"The validation score went from {with_error(first)} to {with_error(last)}: {change}, {sure}."


def change_of(first: Mapping[str, Any], last: Mapping[str, Any]) -> tuple[str, str]:
    """Return the change of a score in words, and whether it is more than two standard errors of the difference."""
    change, errors = last["score"] - first["score"], [first["standard_error"], last["standard_error"]]
    shares = all(0 <= each["score"] <= 1 for each in (first, last))
    points = f"{100 * change:+.1f} points" if shares else f"{change:+.3g}"
    if None in errors:
        return points, "its error is not known"
    return points, "within noise" if abs(change) <= 2 * math.hypot(*errors) else "more than noise"


def with_error(evaluation: Mapping[str, Any]) -> str:
    """Return a score with its standard error, where that is known; in per cent if it lies between 0 and 1."""
    score, error = evaluation["score"], evaluation["standard_error"]
    if not 0 <= score <= 1:
        return f"{score:.3g}"
    return percent(score) if error is None else f"{100 * score:.1f} ±{100 * error:.1f} %"


def percent(value: float | None) -> str:
    """Return a share as text in percent, or "-" for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def figures(log: Mapping[str, Any]) -> str:
    """Return the figures of a logging step in one line; without a sampler of ours, of TRL's equal rewards."""
    log = {name: value for name, value in log.items() if value is not None}  # of rewards without any score
    found = {name: log.get(f"vade/{name}", log.get(f"vade/{name.replace('pass_rate', 'spread')}")) for name in SHARES}
    if found["effective_gradient_ratio"] is None and "frac_reward_zero_std" in log:
        found["effective_gradient_ratio"] = 1 - log["frac_reward_zero_std"]
    parts = [f"{SHARES[name]} {100 * value:.0f} %" for name, value in found.items() if value is not None]
    if "vade/even_draw_ratio" in log and most_are_seen(log):
        parts[0] += f" (even {100 * log['vade/even_draw_ratio']:.0f} %)"
    others = " ".join(f"{word} {log[name]:.3g}" for name, word in OTHERS.items() if name in log)
    return " ".join(parts if len(parts) > 1 else [*parts, others])
