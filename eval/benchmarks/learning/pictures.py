"""The benchmark's pictures: score by rollouts, and what is behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .arms import MAIN
from .curves import Record, by_arm, curve, grid, window_curve

# Okabe and Ito's: they can be told apart without red or green.
COLOURS = {"uniform": "#777777", "dapo": "#E69F00", "paper": "#0072B2", "robust": "#009E73"}
COLOURS |= {"frontier": "#D55E00", "oracle": "black"}
TITLES = {
    "paper_like": "paper-like: most rows mastered",
    "staged": "staged: skills unlock one another",
    "many_impossible": "many impossible rows",
    "hard_pictures": "hard pictures",
    "no_headroom": "no headroom",
}
NAMES = {"uniform": "uniform (vanilla GRPO)", "dapo": "DAPO dynamic sampling", "paper": "VADE, the paper's rule"}
NAMES |= {"robust": "VADE, robust", "frontier": "VADE, frontier (default)", "oracle": "oracle"}


def draw(records: list[Record], directory: Path) -> list[Path]:
    """Write both pictures; return their paths."""
    records = [record for record in records if record["stage"] in ("main", "more")]
    regimes = [regime for regime in TITLES if any(record["regime"] == regime for record in records)]
    if not regimes:
        return []
    return [
        _scores(records, regimes, directory / "learning_benchmark.png"),
        _grid(
            records,
            regimes,
            directory / "learning_details.png",
            [
                ("effective gradient ratio", _window("ratio")),
                ("lift over a uniform draw", _window("lift")),
                ("gradient norm", _window("grad_norm")),
                ("cumulative rollouts, by update", _rollouts),
                ("greedy score", lambda axes, runs: _band(axes, runs, lambda r: curve(r, "greedy"))),
                ("share of impossible rows chosen", _window("chosen_impossible")),
                ("share of mastered rows chosen", _window("chosen_mastered")),
                ("came / believed (reliability)", _reliability),
            ],
            (3.6, 2.6),
        ),
    ]


def _scores(records: list[Record], regimes: list[str], path: Path) -> Path:
    """Draw a panel for each regime, three in a row, and the legend behind the last one."""
    height = len(regimes) // 3 + 1
    figure = Figure(figsize=(9, 2.9 * height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(height, 3, squeeze=False).flat
    for axes, regime in zip(panels, regimes, strict=False):
        _lines(axes, by_arm(records, regime), _score)
        axes.set(title=TITLES[regime], xlabel="rollouts", ylabel="validation score")
    for axes in panels[len(regimes) :]:
        axes.axis("off")
    panels[len(regimes)].legend(*panels[0].get_legend_handles_labels(), loc="center left", frameon=False)
    figure.savefig(path, dpi=160)
    return path


def _grid(
    records: list[Record],
    regimes: list[str],
    path: Path,
    rows: list[tuple[str, Callable[[Any, list[Record]], None]]],
    size: tuple[float, float],
) -> Path:
    """A column for each regime, a row for each kind of figure, a line for each arm."""
    figure = Figure(figsize=(size[0] * len(regimes), size[1] * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), len(regimes), squeeze=False)
    for column, regime in enumerate(regimes):
        arms = by_arm(records, regime)
        for row, (title, line) in enumerate(rows):
            axes = panels[row, column]
            _lines(axes, arms, line)
            axes.set(ylabel=title if column == 0 else "", title=TITLES[regime] if row == 0 else "")
    panels[0, 0].legend(fontsize="small")
    figure.savefig(path, dpi=60)
    return path


def _lines(axes: Any, arms: dict[str, list[Record]], line: Callable[[Any, list[Record]], None]) -> None:
    for arm in [name for name in (*MAIN, "oracle") if name in arms]:
        line(axes, arms[arm])
    axes.grid(alpha=0.3)


def _band(axes: Any, runs: list[Record], values: Callable[[Record], np.ndarray]) -> None:
    """Mean over seeds, and one standard error to either side."""
    arm, lines = runs[0]["arm"], np.array([values(run) for run in runs])
    mean, x = lines.mean(axis=0), grid(runs[0])
    axes.plot(x, mean, color=COLOURS[arm], label=NAMES[arm], linestyle="--" if arm == "oracle" else "-")
    if len(runs) > 1:
        error = lines.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.fill_between(x, mean - error, mean + error, color=COLOURS[arm], alpha=0.15, linewidth=0)


def _score(axes: Any, runs: list[Record]) -> None:
    _band(axes, runs, curve)


def _window(what: str) -> Callable[[Any, list[Record]], None]:
    return lambda axes, runs: _band(axes, runs, lambda record: window_curve(record, what))


def _rollouts(axes: Any, runs: list[Record]) -> None:
    last = min(run["updates"][-1] for run in runs)
    x = np.linspace(0, last, 30)
    mean = np.mean([np.interp(x, run["updates"], run["rollouts"]) for run in runs], axis=0)
    axes.plot(x, mean, color=COLOURS[runs[0]["arm"]])


def _reliability(axes: Any, runs: list[Record]) -> None:
    count = np.sum([run["bin_count"] for run in runs], axis=0)
    believed, came = (
        np.sum([np.multiply(run[name], run["bin_count"]) for run in runs], axis=0) / np.maximum(count, 1)
        for name in ("bin_belief", "bin_came")
    )
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.5)
    axes.plot(believed[count > 20], came[count > 20], ".-", color=COLOURS[runs[0]["arm"]])
