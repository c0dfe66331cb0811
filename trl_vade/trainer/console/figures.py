"""The figures of a logging step as a line of text."""

import math
from collections.abc import Mapping
from typing import Any

USEFUL = "effective_gradient_ratio"
WORDS = {
    USEFUL: "useful",
    "predicted_effective_ratio": "predicted",
    "selected_pass_rate": "chosen",
    "mean_pass_rate": "all",
    "coverage": "seen",
}
"""Words of shares, by metric without `vade/`."""
OTHERS = {"reward": "reward", "loss": "loss", "grad_norm": "grad", "completions/mean_length": "length"}


def figure(name: str, log: Mapping[str, float]) -> float | None:
    """Return a share, or None if the log has none.

    A run without a sampler of ours has useful groups, too: all but those of equal rewards.
    """
    value = log.get(f"vade/{name}", log.get(f"vade/{name.replace('pass_rate', 'spread')}"))
    if value is None and name == USEFUL and "frac_reward_zero_std" in log:
        value = 1 - log["frac_reward_zero_std"]
    return None if value is None or math.isnan(value) else value


def line(log: Mapping[str, float], even: float | None) -> str:
    """Return the figures of a logging step in one line. `even` is the ratio of an even draw."""
    found = {name: figure(name, log) for name in WORDS}
    parts = [f"{WORDS[name]} {percent(value)}" for name, value in found.items() if value is not None]
    if even is not None and found[USEFUL] is not None:
        parts[0] += f" (even {percent(even)})"
    others = " ".join(f"{word} {log[name]:.3g}" for name, word in OTHERS.items() if name in log)
    return " ".join(parts if len(parts) > 1 else [*parts, others])


def percent(share: float) -> str:
    """Return a share in per cent, without digits after the point."""
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Return a time as a person says it: 36 s, 4 min 36 s, 2 h 5 min."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"


def plain_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries of a log that are numbers."""
    return {name: value for name, value in logs.items() if isinstance(value, int | float)}
