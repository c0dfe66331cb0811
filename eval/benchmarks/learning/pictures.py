"""The benchmark's pictures: score by rollouts, and belief against outcome."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.selection.report.style import LIGHT, WIDEST, drawing, head
from trl_vade.selection.report.style import curve as draw_curve

from .arms import DEFAULT
from .curves import Record, by_arm, curve, grid
from .protocol import PLANS, SEEDS
from .tables import TITLES

PARTS = {"uniform": "quiet", "dapo": "second", "paper": "first", DEFAULT: "third", "frontier": "fourth"}
PARTS |= {"oracle": "sixth"}
NAMES = {"uniform": "vanilla GRPO: even draws", "dapo": "DAPO: even draws, dynamic sampling"}
NAMES |= {name: f"VADE, {name}" for name in ("paper", "frontier")} | {DEFAULT: "VADE, balanced"}
NAMES |= {"oracle": "oracle: knows every pass rate"}


def draw(records: list[Record], directory: Path) -> list[Path]:
    """Write both pictures, of the seeds that the default has run; return their paths."""
    records = [record for record in records if record["stage"] == "runs" and record["seed"] in SEEDS[DEFAULT]]
    regimes = [regime for regime in PLANS if any(record["regime"] == regime for record in records)]
    if not regimes:
        return []
    scores = (
        directory / "learning_benchmark.png",
        "Mean over the seeds; the band is one\nstandard error to either side.",
    )
    beliefs = directory / "learning_calibration.png", "Share of right answers, by the share\nthat was believed before."
    return [
        _panels(records, regimes, *scores, _score, {"xlabel": "rollouts", "ylabel": "validation score"}),
        _panels(records, regimes, *beliefs, _reliability, {"xlabel": "believed", "ylabel": "came"}),
    ]


def _panels(
    records: list[Record],
    regimes: list[str],
    path: Path,
    what: str,
    line: Callable[[Any, list[Record]], None],
    labels: dict[str, str],
) -> Path:
    """Draw a panel for each regime, two in a row, and what the names mean behind the last one."""
    height = len(regimes) // 2 + 1
    with drawing(WIDEST, 3.1 * height) as figure:
        panels = figure.subplots(height, 2, squeeze=False).flat
        for axes, regime in zip(panels, regimes, strict=False):
            arms = by_arm(records, regime)
            for arm in [name for name in PARTS if name in arms]:
                line(axes, arms[arm])
            head(axes, *TITLES[regime], **labels)
            if line is _score:
                axes.xaxis.set_major_formatter("{x:,.0f}")
                axes.locator_params(axis="x", nbins=5)
        for axes in panels[len(regimes) :]:
            axes.axis("off")
        lines = panels[0].get_legend_handles_labels()
        panels[len(regimes)].legend(*lines, loc="center left", title=what, alignment="left")
        figure.savefig(path, dpi=150)
    return path


def _score(axes: Any, runs: list[Record]) -> None:
    """Mean over seeds, and one standard error to either side."""
    arm, lines = runs[0]["arm"], np.array([curve(run) for run in runs])
    mean, x = lines.mean(axis=0), grid(runs[0])
    draw_curve(axes, x, mean, PARTS[arm], NAMES[arm])
    if len(runs) > 1:
        error = lines.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.fill_between(x, mean - error, mean + error, color=LIGHT[PARTS[arm]], alpha=0.15, linewidth=0)


def _reliability(axes: Any, runs: list[Record]) -> None:
    runs = [run for run in runs if "bin_count" in run]
    if not runs or runs[0]["arm"] == "oracle":
        return
    count = np.sum([run["bin_count"] for run in runs], axis=0)
    believed, came = (
        np.sum([np.multiply(run[name], run["bin_count"]) for run in runs], axis=0) / np.maximum(count, 1)
        for name in ("bin_belief", "bin_came")
    )
    axes.plot([0, 1], [0, 1], color=LIGHT["ink"], linewidth=0.5)
    arm = runs[0]["arm"]
    draw_curve(axes, believed[count > 20], came[count > 20], PARTS[arm], NAMES[arm])
