"""The figures of a run as text: a line of a logging step, and the table of the panel."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

USEFUL, PREDICTED, CHOSEN, ALL, SEEN = (
    "effective_gradient_ratio",
    "predicted_effective_ratio",
    "selected_pass_rate",
    "mean_pass_rate",
    "coverage",
)
LABELS = {
    USEFUL: ("useful", "useful groups"),
    PREDICTED: ("predicted", "predicted"),
    CHOSEN: ("chosen", "pass rate of chosen"),
    ALL: ("all", "pass rate of all rows"),
    SEEN: ("seen", "rows seen"),
}
"""By metric without `vade/`: the word in a line, and the label in the panel."""
OTHERS = {"reward": "reward", "loss": "loss", "grad_norm": "grad", "completions/mean_length": "length"}
CLOSE = 0.1  # difference of a prediction that can be trusted
FALL = 0.02  # of the pass rate of chosen rows, that calls for a word
LAST = 5  # logging steps in the mean of the panel

Logs = Sequence[Mapping[str, float]]


def figure(name: str, logs: Logs) -> float | None:
    """Return the mean of a share over some logging steps; None if none of them has it.

    A run without a sampler of ours has useful groups, too: all but those of equal rewards.
    """
    values = [log.get(f"vade/{name}", log.get(f"vade/{name.replace('pass_rate', 'spread')}")) for log in logs]
    if name == USEFUL:
        values = [
            1 - log["frac_reward_zero_std"] if value is None and "frac_reward_zero_std" in log else value
            for value, log in zip(values, logs, strict=True)
        ]
    known = [value for value in values if value is not None and not math.isnan(value)]
    return sum(known) / len(known) if known else None


def line(logs: Logs, even: float | None) -> str:
    """Return the figures of the last logging step in one line. `even` is the ratio of an even draw."""
    found = {name: figure(name, logs[-1:]) for name in LABELS}
    parts = [f"{LABELS[name][0]} {percent(value)}" for name, value in found.items() if value is not None]
    if even is not None and found[USEFUL] is not None:
        parts[0] += f" (even {percent(even)})"
    return " ".join(parts if len(parts) > 1 else [*parts, others(logs[-1])])


def others(log: Mapping[str, float]) -> str:
    """Return the figures that are no shares."""
    return " ".join(f"{word} {log[name]:.3g}" for name, word in OTHERS.items() if name in log)


def table(logs: Logs, even: float | None, every: int, *, adaptive: bool, remarks: bool) -> Table:
    """Return the mean figures of the last logging steps beside those of the first, and what they mean.

    Args:
        logs: of the logging steps so far, at least one.
        even: the ratio of an even draw, None if not known.
        every: the optimiser steps of a logging step.
        adaptive: whether the sampler chooses hard rows on purpose.
        remarks: whether there is room for what the figures mean.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for _ in range(2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", style="dim")
    grid.add_row("", f"last {min(LAST, len(logs)) * every} steps", "start")
    now = {name: figure(name, logs[-1:] if name == SEEN else logs[-LAST:]) for name in LABELS}
    for name, value in now.items():
        if value is not None:
            start = figure(name, logs[:1])
            remark = others(logs[-1]) if name == SEEN else _remark(name, now, start, even, adaptive)
            grid.add_row(LABELS[name][1], percent(value), percent(start), remark if remarks else "")
    if now[SEEN] is None:
        grid.add_row(others(logs[-1]))
    return grid


def _remark(
    name: str, now: Mapping[str, float | None], start: float | None, even: float | None, adaptive: bool
) -> str:
    useful, value = now[USEFUL], now[name]
    if name == USEFUL:
        return "right and wrong answers" + ("" if even is None else f"; an even draw: about {percent(even)}")
    if name == PREDICTED and useful is not None and value is not None:
        close = abs(value - useful) < CLOSE
        return "close: the belief can be trusted" if close else "not close yet: the belief is learning"
    if name == CHOSEN and adaptive and start is not None and value is not None and start - value > FALL:
        return "falls by design: harder rows are chosen"
    return "the policy itself, as believed" if name == ALL else ""


def percent(share: float | None) -> str:
    """Return a share in per cent, without digits after the point."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Return a time as a person says it: 36 s, 4 min 36 s, 2 h 5 min."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"


def plain_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries of a log that are numbers."""
    return {name: value for name, value in logs.items() if isinstance(value, int | float)}
