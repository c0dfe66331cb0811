"""The panels that show what the sampler did: as one picture, `vade_report.png`, and each as SVG for the page."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.pictures.palette import LIGHT
from trl_vade.pictures.style import (
    WIDEST,
    band_styles,
    curve,
    dots,
    drawing,
    head,
    name_end,
    spread_names,
)
from trl_vade.pictures.svg import inline_svg

from .record import Run, column, pass_rates

WINDOW = 5  # generation batches in the running mean, and in one column of the shares
FEW_ENTRIES = 40  # a history of so few entries is drawn as it is
MOST_BANDS = 12  # the rarest further strata are one band
MOST_COLUMNS = 100  # of the shares
PANEL = (WIDEST / 2, 3.0)  # inches


def _useful(axes: Any, run: Run) -> None:
    steps = column(run.selections, "step")
    dots(axes, steps, run.effective_gradient_ratio, "first")
    curve(axes, steps, running_mean(run.effective_gradient_ratio), "first", "realised")
    predicted = running_mean(column(run.selections, "predicted_effective_ratio"))
    curve(axes, steps, predicted, "second", "predicted")
    curve(axes, steps, column(run.selections, "even_draw_ratio"), "quiet", "even draw\n(estimate)")
    note = f"groups with different rewards, mean of {WINDOW}"
    head(axes, "Useful groups", note, xlabel=_per_line(run), ylabel="share of groups", ylim=(0, 1))


def _rewards(axes: Any, run: Run) -> None:
    steps, rewards = _logged(run, "reward")
    # Entries logged every few steps are means already, and a mean over several of them would lag behind.
    window = WINDOW if len(steps) > FEW_ENTRIES else 1
    dots(axes, steps, rewards, "second")
    curve(axes, steps, running_mean(rewards, window), "second", "reward of\nchosen rows")
    for name, what in (("mean_pass_rate", "pass rate"), ("mean_spread", "spread")):
        curve(axes, *_logged(run, f"vade/{name}"), "third", f"{what} of\nall rows (belief)")
    note = (
        "all rows are drawn equally often"
        if run.about.get("sampler") == "uniform"
        else "may fall by design: harder rows are chosen"
    )
    head(axes, "Reward", note, xlabel="optimiser step")


def _validation(axes: Any, run: Run) -> None:
    evaluations = run.validation
    steps, scores = column(evaluations, "step"), column(evaluations, "score")
    curve(axes, steps, scores, "first", run.about.get("sampler") or "", markevery=1)
    errors = column(evaluations, "standard_error")
    axes.errorbar(steps, scores, yerr=errors, fmt="none", color=LIGHT["first"], capsize=3, elinewidth=1)
    known = not np.isnan(errors).all()
    note = "bars: one standard error to either side" if known else "without its error, which is not known"
    head(axes, "Validation score", note, xlabel="optimiser step")


def _pass_rates(axes: Any, run: Run) -> None:
    edges = _edges(run.num_generations)
    lines = run.selections
    fifth = max(len(lines) // 5, 1)
    middle = (len(lines) - fifth) // 2
    parts = {"start": lines[:fifth], "middle": lines[middle : middle + fifth], "end": lines[-fifth:]}
    for (name, part), colour in zip(parts.items(), ("quiet", "second", "first"), strict=True):
        rates = pass_rates(part)
        shares = np.histogram(rates[~np.isnan(rates)], bins=edges)[0] / len(rates)
        curve(axes, (edges[1:] + edges[:-1]) / 2, shares, colour, markevery=1, label=name)
    what = "spreads" if run.has_spreads else "pass rates"
    note = "groups of a fifth of the run each"
    head(axes, f"The {what} of the chosen groups", note, xlabel=what, ylabel="share of those groups")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))  # at one place all lines end


def _edges(num_generations: int) -> NDArray[np.float64]:
    """Return edges of about ten bins, each around as many of the values r / G: others would show spikes."""
    width = max(round(num_generations / 10), 1)
    return (np.arange(0, num_generations + width + 1, width) - 0.5) / num_generations


def _shares(axes: Any, run: Run) -> None:
    """Bands of the shares, named at their right ends."""
    lines = run.selections
    width = max(WINDOW, len(lines) // MOST_COLUMNS)
    columns = [lines[i : i + width] for i in range(0, len(lines), width)]
    chosen = [np.concatenate([line["sample_index"] for line in column]) for column in columns]
    strata = _with_rest(np.asarray(run.strata), np.concatenate(chosen))
    names = sorted({*strata[np.concatenate(chosen)].tolist()}, reverse=True)  # the first name is on top
    shares = np.array([[np.mean(strata[rows] == name) for rows in chosen] for name in names])  # (strata, columns)
    steps = [column[0]["step"] for column in columns]
    middles = np.cumsum(shares[:, -1]) - shares[:, -1] / 2
    styles = band_styles(names[::-1])
    bottom = np.zeros(len(steps))
    for name, share, middle in zip(names, shares, middles, strict=True):
        part, style = styles[name]["part"], {key: styles[name][key] for key in ("color", "alpha")}
        axes.fill_between(steps, bottom, bottom + share, linewidth=0, **style)
        bottom = bottom + share
        axes.plot(steps, bottom, color=LIGHT["ground"], linewidth=0.8)
        name_end(axes, steps[-1], middle, name, part, style["alpha"])
    head(axes, "Strata of the chosen rows", f"shares, mean of {width}", xlabel=_per_line(run), ylim=(0, 1))
    axes.margins(x=0)
    axes.grid(visible=False)


def _with_rest(strata: NDArray[Any], chosen: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of all rows, with one label for the strata that were chosen least."""
    common = [name for name, _ in Counter(strata[chosen].tolist()).most_common()]
    rest = common[MOST_BANDS - 1 :] if len(common) > MOST_BANDS else []
    return np.where(np.isin(strata, rest), f"{len(rest)} others", strata)


def _per_line(run: Run) -> str:
    return "generation batch" if len(run.batches) == len(run.selections) else "generation batch or refill"


def _logged(run: Run, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    entries = [entry for entry in run.history if entry.get(name) is not None]
    return column(entries, "step"), column(entries, name)


def running_mean(values: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Mean over the last `window` values at each place (fewer at the start), NaN left out."""
    known = ~np.isnan(values)
    total = np.cumsum(np.where(known, values, 0.0))
    count = np.cumsum(known)
    total[window:] -= total[:-window].copy()
    count[window:] -= count[:-window].copy()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


Panel = Callable[[Any, Run], None]
PANELS: dict[str, Panel] = {
    "useful": _useful,
    "validation": _validation,
    "rewards": _rewards,
    "pass_rates": _pass_rates,
    "strata": _shares,
}


def panels_of(run: Run) -> dict[str, Panel]:
    """Return the panels for which the run has something to show."""
    there = {"validation": bool(run.validation), "strata": run.strata is not None}
    return {name: panel for name, panel in PANELS.items() if there.get(name, True)}


def draw_report(run: Run, path: Path) -> None:
    """Draw all panels of the run into the PNG `path`, two in a row; a last one alone takes the whole row."""
    panels = panels_of(run)
    names = list(panels)
    rows = [[names[i], names[min(i + 1, len(names) - 1)]] for i in range(0, len(names), 2)]
    with drawing(WIDEST, PANEL[1] * len(rows) + 0.4) as figure:
        figure.suptitle(run.title, fontweight="bold")
        for name, axes in figure.subplot_mosaic(rows).items():
            panels[name](axes, run)
        spread_names(figure)
        figure.savefig(path, dpi=150)


def svg_panels(run: Run) -> dict[str, str]:
    """Return each panel of the run as `inline_svg`, by its name in `PANELS`."""
    drawn = {}
    for name, panel in panels_of(run).items():
        with drawing(*PANEL) as figure:
            axes = figure.subplots()
            panel(axes, run)
            spread_names(figure)
            drawn[name] = inline_svg(figure, f"vade-{name}", axes.get_label())
    return drawn
