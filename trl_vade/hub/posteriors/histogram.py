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
    from trl_vade.pictures.style import WIDEST, bar_styles, drawing, head, short

    by_task = counts_by_task(table)
    step = table.metadata.get("global_step")
    note = "believed after the training until now" if step is None else f"believed after optimiser step {step:,}"
    with drawing(WIDEST, 4.5) as figure:
        axes = figure.subplots()
        bottom = np.zeros(NUM_BINS)
        for counts, style in zip(by_task.values(), bar_styles(len(by_task)), strict=True):
            axes.bar(EDGES[:-1], counts, 1 / NUM_BINS, bottom, align="edge", **style)
            bottom += counts
        head(axes, f"Pass rates of {len(table):,} rows", note, xlabel="posterior mean", ylabel="rows")
        axes.set(xlim=(0, 1), xticks=EDGES)
        axes.grid(visible=False, axis="x")
        if table.task:
            bars, names = axes.containers[::-1], [short(name) for name in reversed(by_task)]
            axes.legend(bars, names, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(path, dpi=150)


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
