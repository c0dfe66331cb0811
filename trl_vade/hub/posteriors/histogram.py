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


def text_histogram(table: PosteriorTable) -> str:
    """Return a line for each bin, of at most 80 characters: its name, its number of rows, and a bar if it has any."""
    counts = bin_counts(table.pass_rate).tolist()
    most, digits = max(*counts, 1), len(f"{max(counts):,}")
    lines = [(name, count, -(count * (66 - digits) // -most)) for name, count in zip(bin_names(), counts, strict=True)]
    return "\n".join(f"{name}  {count:>{digits},}  {'#' * size}".rstrip() for name, count, size in lines)


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
    label = dict.fromkeys(order, f"{len(order) - len(shown)} other tasks") | {name: name for name in shown}
    labels = np.array([label[task] for task in tasks], dtype=object)
    return {name: bin_counts(table.pass_rate[labels == name]) for name in dict.fromkeys(label[task] for task in order)}
