"""The panels that show what the sampler did: as one picture, `vade_report.png`, and each as SVG for the page."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .record import Run, column, pass_rates
from .style import LIGHT, SERIES, WIDEST, curve, drawing, head, short

WINDOW = 5  # draws in the running mean, and at least in one column of the shares
MOST_BANDS = 12  # of the strata; the rarest further ones are left white
PANEL = (WIDEST / 2, 3.0)  # inches


def _useful(axes: Any, run: Run) -> None:
    steps, realised = (column(run.selections, name) for name in ("step", "effective_gradient_ratio"))
    predicted, even = (column(run.selections, f"{name}_ratio") for name in ("predicted_effective", "even_draw"))
    _dots(axes, steps, realised, "first")
    curve(axes, steps, running_mean(realised), "first", "realised")
    curve(axes, steps, running_mean(predicted), "second", "predicted")
    curve(axes, steps, even, "quiet", "even draw\n(estimate)")
    note = f"groups with different rewards, mean of {WINDOW} draws"
    head(axes, "Useful groups", note, xlabel="draw", ylabel="share of groups", ylim=(0, 1))


def _validation(axes: Any, run: Run) -> None:
    steps, scores, errors = (column(run.validation(), name) for name in ("step", "score", "standard_error"))
    curve(axes, steps, scores, "first", markevery=1)
    axes.errorbar(steps, scores, yerr=errors, fmt="none", color=LIGHT["first"], capsize=3, elinewidth=1)
    head(axes, "Validation score", "bars: one standard error, where it is known", xlabel="optimiser step")


def _rewards(axes: Any, run: Run) -> None:
    steps, rewards = _logged(run, "reward")
    _dots(axes, steps, rewards, "second")
    # Few entries are means of several steps already, and a mean over them would lag behind.
    curve(axes, steps, running_mean(rewards, max(len(steps) // 20, 1)), "second", "reward of\nchosen rows")
    name, what = ("mean_spread", "spread") if run.has_spreads else ("mean_pass_rate", "pass rate")
    curve(axes, *_logged(run, f"vade/{name}"), "third", f"{what} of\nall rows (belief)")
    head(axes, "Reward", "falls where harder rows are chosen", xlabel="optimiser step")


def _pass_rates(axes: Any, run: Run) -> None:
    edges = _edges(round(max(max(line["trials"]) for line in run.selections)) or 1)
    quarter = max(len(run.selections) // 4, 1)
    parts = {"first\nquarter": run.selections[:quarter], "last\nquarter": run.selections[-quarter:]}
    for (name, part), colour in zip(parts.items(), ("quiet", "first"), strict=True):
        rates = pass_rates(part)
        shares = np.histogram(rates[~np.isnan(rates)], bins=edges)[0] / len(rates)
        curve(axes, (edges[1:] + edges[:-1]) / 2, shares, colour, name, markevery=1)
    what = "spread" if run.has_spreads else "pass rate"
    labels = {"xlabel": what, "ylabel": "share of groups", "ylim": (0, None)}
    head(axes, f"The {what}s of the chosen groups", "those that teach lie in the middle", **labels)


def _edges(num_generations: int) -> NDArray[np.float64]:
    """Return edges of about ten bins, each around as many of the values r / G: others would show spikes."""
    width = max(round(num_generations / 10), 1)
    return (np.arange(0, num_generations + width + 1, width) - 0.5) / num_generations


def _strata(axes: Any, run: Run) -> None:
    lines, label = run.selections, {row: name for name, rows in run.rows["tasks"].items() for row in rows}
    width = max(WINDOW, len(lines) // 100)
    parts = [lines[i : i + width] for i in range(0, len(lines), width)]
    columns = [Counter(label.get(row) for line in part for row in line["sample_index"]) for part in parts]
    common = [name for name, _ in sum(columns, Counter[str | None]()).most_common() if name is not None]
    names = sorted(common[:MOST_BANDS])
    # Each two names that follow each other differ in hue, and each six in shade.
    colours = [(LIGHT[SERIES[i % len(SERIES)]], 0.6 ** (i // len(SERIES))) for i in range(len(names))]
    axes.stackplot(
        [part[0]["step"] for part in parts],
        [[column[name] / column.total() for column in columns] for name in names[::-1]],  # the first name is on top
        labels=[short(name) for name in names[::-1]],
        colors=colours[::-1],
        **{"edgecolor": LIGHT["ground"], "linewidth": 0.8},
    )
    head(axes, "Strata of the chosen rows", f"shares, mean of {width} draws", xlabel="draw", ylim=(0, 1))
    axes.margins(x=0)
    axes.grid(visible=False)


def _dots(axes: Any, x: Any, y: Any, part: str) -> None:
    axes.plot(x, y, ".", color=LIGHT[part], alpha=0.35, markersize=4, rasterized=True)  # many would be a large SVG


def _logged(run: Run, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    entries = [entry for entry in run.history if name in entry]
    return column(entries, "step"), column(entries, name)


def running_mean(values: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Return the mean of the last `window` values at each place (fewer at the start), NaN left out."""
    known, ones = ~np.isnan(values), np.ones(window)
    total, count = (np.convolve(each, ones)[: len(values)] for each in (np.where(known, values, 0.0), known))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def draw_report(run: Run, path: Path) -> dict[str, bytes]:
    """Draw what the run has to show into the PNG `path`, two panels in a row, and return each as SVG, by its title."""
    panels = {"Useful groups": _useful}
    panels |= {"Validation score": _validation} if run.validation() else {}
    panels |= {"Reward": _rewards} if any("reward" in entry for entry in run.history) else {}
    panels |= {"Chosen groups": _pass_rates} | ({"Strata": _strata} if run.rows.get("tasks") else {})
    names, drawn = list(panels), {}
    rows = [[names[i], names[min(i + 1, len(names) - 1)]] for i in range(0, len(names), 2)]
    with drawing(WIDEST, PANEL[1] * len(rows) + 0.4) as figure:
        figure.suptitle(run.title, fontweight="bold")
        for name, axes in figure.subplot_mosaic(rows).items():
            _draw(axes, panels[name], run)
        figure.savefig(path, dpi=150)
    for name in names:
        with drawing(*PANEL) as figure:
            _draw(figure.subplots(), panels[name], run)
            written = io.BytesIO()
            figure.savefig(written, format="svg", transparent=True, dpi=200)
            drawn[name] = written.getvalue()
    return drawn


def _draw(axes: Any, panel: Any, run: Run) -> None:
    panel(axes, run)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=panel is _strata)
