"""The benchmark's picture: score by rollouts."""

from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.selection.report.style import LIGHT, WIDEST, drawing, head
from trl_vade.selection.report.style import curve as draw_curve

from .curves import Record, curve, grid
from .tables import TITLES, compared

NAMES = {
    "vanilla": ("quiet", "vanilla GRPO, tuned"),
    "vanilla, replay, more passes": ("first", "vanilla GRPO, replay, more passes"),
    "default": ("second", "VADE, tuned"),
    "default, replay, more passes": ("third", "VADE, replay, more passes"),
    "oracle, replay, more passes": ("sixth", "oracle, replay, more passes"),
}
"""By arm, its colour and its name."""


def draw(records: list[Record], directory: Path) -> list[Path]:
    """Write a picture with a panel for each regime, two in a row; return its path, or nothing without runs."""
    found = compared(records)
    if not found:
        return []
    height, path = len(found) // 2 + 1, directory / "learning_benchmark.png"
    with drawing(WIDEST, 3.1 * height) as figure:
        panels = figure.subplots(height, 2, squeeze=False).flat
        for axes, (regime, arms) in zip(panels, found, strict=False):
            for arm in [name for name in NAMES if len(arms[name]) == len(arms["vanilla"])]:  # all of its seeds
                _score(axes, arm, arms[arm])
            head(axes, *TITLES[regime], xlabel="rollouts", ylabel="validation score")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.locator_params(axis="x", nbins=5)
        for axes in panels[len(found) :]:
            axes.axis("off")
        lines = panels[0].get_legend_handles_labels()
        what = "Mean over the seeds; the band is one\nstandard error to either side."
        panels[len(found)].legend(*lines, loc="center left", title=what, alignment="left")
        figure.savefig(path, dpi=150)
    return [path]


def _score(axes: Any, arm: str, runs: list[Record]) -> None:
    """Mean over seeds, and one standard error to either side."""
    colour, name = NAMES[arm]
    lines, x = np.array([curve(run) for run in runs]), grid(runs[0])
    mean = lines.mean(axis=0)
    draw_curve(axes, x, mean, colour, name)
    if len(runs) > 1:
        error = lines.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.fill_between(x, mean - error, mean + error, color=LIGHT[colour], alpha=0.15, linewidth=0)
