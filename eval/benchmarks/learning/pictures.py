"""The benchmark's pictures: score by rollouts, and what is behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.pictures.palette import LIGHT
from trl_vade.pictures.style import WIDEST, drawing, head, key, spread_names
from trl_vade.pictures.style import curve as draw_curve

from .arms import MAIN
from .curves import Record, by_arm, curve, grid, window_curve

PARTS = {"uniform": "quiet", "dapo": "second", "paper": "first", "robust": "third", "frontier": "fourth"}
PARTS |= {"oracle": "sixth"}
TITLES = {
    "paper_like": ("Paper-like", "most rows mastered"),
    "staged": ("Staged", "skills unlock one another"),
    "many_impossible": ("Impossible", "many rows are out of reach"),
    "hard_pictures": ("Hard pictures", "half of them out of reach"),
    "no_headroom": ("No headroom", "pictures of medium difficulty"),
}
NAMES = {"uniform": "vanilla GRPO", "dapo": "DAPO", "paper": "paper", "robust": "robust", "frontier": "frontier"}
NAMES |= {"oracle": "oracle"}
BAND = "Mean over the seeds; the band is one\nstandard error to either side."
KEY = f"""{BAND}

vanilla GRPO: even draws
DAPO: even draws, dynamic sampling
paper, robust, frontier: VADE's presets;
frontier is the default
oracle: knows every pass rate"""


def draw(records: list[Record], directory: Path) -> list[Path]:
    """Write both pictures; return their paths."""
    records = [record for record in records if record["stage"] in ("main", "more")]
    regimes = [regime for regime in TITLES if any(record["regime"] == regime for record in records)]
    if not regimes:
        return []
    lines = {
        "effective gradient ratio": _window("ratio"),
        "lift over a uniform draw": _window("lift"),
        "gradient norm": _window("grad_norm"),
        "rollouts, by update": _rollouts,
        "greedy score": lambda axes, runs: _band(axes, runs, lambda record: curve(record, "greedy")),
        "impossible rows chosen": _window("chosen_impossible"),
        "mastered rows chosen": _window("chosen_mastered"),
        "came, by believed": _reliability,
    }
    return [
        _scores(records, regimes, directory / "learning_benchmark.png"),
        _details(records, regimes, lines, directory / "learning_details.png"),
    ]


def _scores(records: list[Record], regimes: list[str], path: Path) -> Path:
    """Draw a panel for each regime, two in a row, and what the names mean behind the last one."""
    height = len(regimes) // 2 + 1
    with drawing(WIDEST, 3.1 * height) as figure:
        panels = figure.subplots(height, 2, squeeze=False).flat
        for axes, regime in zip(panels, regimes, strict=False):
            _lines(axes, by_arm(records, regime), lambda axes, runs: _band(axes, runs, curve, NAMES[runs[0]["arm"]]))
            head(axes, *TITLES[regime], xlabel="rollouts", ylabel="validation score")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        for axes in panels[len(regimes) :]:
            axes.axis("off")
        panels[len(regimes)].text(0, 0.5, KEY, va="center", linespacing=1.4)
        spread_names(figure)
        figure.savefig(path, dpi=150)
    return path


def _details(
    records: list[Record], regimes: list[str], lines: dict[str, Callable[[Any, list[Record]], None]], path: Path
) -> Path:
    """Draw a column for each regime, a row for each kind of figure, a line for each arm."""
    with drawing(WIDEST, 2 * len(lines) + 0.6) as figure:
        panels = figure.subplots(len(lines), len(regimes), squeeze=False, sharey="row")
        for column, regime in enumerate(regimes):
            arms = by_arm(records, regime)
            for axes, (title, line) in zip(panels[:, column], lines.items(), strict=True):
                _lines(axes, arms, line)
                axes.set(ylabel=title if column == 0 else "")
                axes.locator_params(axis="x", nbins=2)
            panels[0, column].set_title(TITLES[regime][0])
        arms = [arm for arm in PARTS if any(record["arm"] == arm for record in records)]
        figure.legend(handles=key({NAMES[arm]: PARTS[arm] for arm in arms}), loc="outside upper left", ncols=len(arms))
        figure.supxlabel(BAND.replace("\n", " "))
        figure.savefig(path, dpi=110)
    return path


def _lines(axes: Any, arms: dict[str, list[Record]], line: Callable[[Any, list[Record]], None]) -> None:
    for arm in [name for name in (*MAIN, "oracle") if name in arms]:
        line(axes, arms[arm])


def _band(axes: Any, runs: list[Record], values: Callable[[Record], np.ndarray], name: str = "") -> None:
    """Mean over seeds, and one standard error to either side."""
    part, lines = PARTS[runs[0]["arm"]], np.array([values(run) for run in runs])
    mean, x = lines.mean(axis=0), grid(runs[0])
    draw_curve(axes, x, mean, part, name)
    if len(runs) > 1:
        error = lines.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.fill_between(x, mean - error, mean + error, color=LIGHT[part], alpha=0.15, linewidth=0)


def _window(what: str) -> Callable[[Any, list[Record]], None]:
    return lambda axes, runs: _band(axes, runs, lambda record: window_curve(record, what))


def _rollouts(axes: Any, runs: list[Record]) -> None:
    last = min(run["updates"][-1] for run in runs)
    x = np.linspace(0, last, 30)
    mean = np.mean([np.interp(x, run["updates"], run["rollouts"]) for run in runs], axis=0)
    draw_curve(axes, x, mean, PARTS[runs[0]["arm"]])


def _reliability(axes: Any, runs: list[Record]) -> None:
    count = np.sum([run["bin_count"] for run in runs], axis=0)
    believed, came = (
        np.sum([np.multiply(run[name], run["bin_count"]) for run in runs], axis=0) / np.maximum(count, 1)
        for name in ("bin_belief", "bin_came")
    )
    axes.plot([0, 1], [0, 1], color=LIGHT["ink"], linewidth=0.5)
    draw_curve(axes, believed[count > 20], came[count > 20], PARTS[runs[0]["arm"]])
