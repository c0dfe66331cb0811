"""Histogram of pass rates in ten bins, for the terminal, a card and a picture."""

import os
from collections import Counter
from typing import Any

import numpy as np

from trl_vade.checks import IntArray

from .table import PosteriorTable

NUM_BINS = 10
EDGES = np.arange(NUM_BINS + 1) / NUM_BINS  # linspace would give 0.30000000000000004, above a rate of 0.3
MOST_TASKS = 8  # Tasks in the picture. The rarest further tasks are one entry.


def bin_counts(pass_rate: Any) -> IntArray:
    """Return the number of pass rates in [0, 0.1), [0.1, 0.2), ... [0.9, 1], (10,)."""
    counts, _ = np.histogram(pass_rate, bins=EDGES)
    return counts.astype(np.int64)


def bin_names() -> list[str]:
    """Return the names of the bins, "0.0 to 0.1" and so on."""
    return [f"{number / NUM_BINS:.1f} to {(number + 1) / NUM_BINS:.1f}" for number in range(NUM_BINS)]


def text_histogram(table: PosteriorTable, width: int = 80) -> str:
    """Return a line for each of the ten bins: its name, its number of rows and a bar of at least one character.

    `width` is the number of characters of the longest line, at least 30. A bin without rows has no bar.
    """
    counts = bin_counts(table.pass_rate)
    numbers = [f"{count:,}" for count in counts.tolist()]
    digits = max(map(len, numbers))
    names = bin_names()
    room = max(width - len(names[0]) - digits - 4, 1)
    lengths = np.ceil(counts * (room / max(int(counts.max()), 1))).astype(int).tolist()
    lines = zip(names, numbers, lengths, strict=True)
    return "\n".join(f"{name}  {number:>{digits}}  {'#' * min(size, room)}".rstrip() for name, number, size in lines)


def draw_pass_rates(table: PosteriorTable, path: str | os.PathLike[str]) -> None:
    """Draw the histogram of the pass rates, stacked by task if tasks are known, and write it to the PNG `path`.

    Raises:
        ImportError: matplotlib is not installed (`pip install "trl-vade[report]"`).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")  # not pyplot: a library must not choose the user's backend
    axes = figure.subplots()
    bars: dict[str, Any] = {"width": 1 / NUM_BINS, "align": "edge", "edgecolor": "w"}
    bottom = np.zeros(NUM_BINS)
    for number, (name, counts) in enumerate(counts_by_task(table).items()):
        axes.bar(EDGES[:-1], counts, bottom=bottom, label=name, color=f"C{number}", **bars)
        bottom += counts
    step = table.metadata.get("global_step")
    at = "" if step is None else f" at optimiser step {step:,}"
    axes.set(title=f"Pass rates of {len(table):,} rows{at}", xlabel="posterior mean of the pass rate", ylabel="rows")
    axes.set(xlim=(0, 1), xticks=EDGES)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    if table.task:
        tasks = [(container.patches[0], _label(container.get_label())) for container in reversed(axes.containers)]
        axes.legend(*zip(*tasks, strict=True), loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(path, dpi=110)


def counts_by_task(table: PosteriorTable) -> dict[str, IntArray]:
    """Return the counts, (10,), by task, the most common task first; without tasks one entry for all rows."""
    if table.task is None:
        return {"all rows": bin_counts(table.pass_rate)}
    tasks = ["no task" if task is None else task for task in table.task]
    order = [name for name, _ in Counter(tasks).most_common()]
    shown = order if len(order) <= MOST_TASKS else order[: MOST_TASKS - 1]
    rest = f"{len(order) - len(shown)} other tasks"
    kept = set(shown)
    labels = np.array([task if task in kept else rest for task in tasks], dtype=object)
    names = [*shown, rest] if len(shown) < len(order) else shown
    return {name: bin_counts(table.pass_rate[labels == name]) for name in names}


def _label(task: str) -> str:
    """Return a label for matplotlib, where a dollar starts a formula and a leading _ hides the entry."""
    short = task if len(task) <= 30 else f"{task[:27]}..."
    return short.lstrip("_").replace("$", r"\$")
