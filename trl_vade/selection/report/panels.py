"""The panels that show what the sampler did, each a function of axes and a `View`. PNG and HTML report share them."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trl_vade.pictures.palette import LIGHT
from trl_vade.pictures.style import band_styles, curve, dots, head, name_end

from .record import Run
from .view import View

WINDOW = 5  # generation batches in the running mean, and in one column of the shares
FEW_ENTRIES = 40  # a history of so few entries is drawn as it is
MOST_BANDS = 12  # the rarest further strata are one band
MOST_BINS = 24
MOST_COLUMNS = 100  # of the shares
UNITS = {"hours": 3600, "minutes": 60}


def _useful(axes: Any, view: View) -> None:
    run = view.run
    steps = _values(run.selections, "step")
    dots(axes, steps, run.effective_gradient_ratio, "first")
    curve(axes, steps, running_mean(run.effective_gradient_ratio), "first", "realised")
    predicted = running_mean(_values(run.selections, "predicted_effective_ratio"))
    curve(axes, steps, predicted, "second", "predicted")
    curve(axes, *np.array(view.even_draw).T, "quiet", "even draw\n(estimate)")
    note = f"groups with right and wrong answers, mean of {WINDOW}"
    head(axes, "Useful groups", note, xlabel=_per_line(run), ylabel="share of groups", ylim=(0, 1))


def _rewards(axes: Any, view: View) -> None:
    run = view.run
    steps, rewards = _logged(run, "reward")
    # Entries logged every few steps are means already, and a mean over several of them would lag behind.
    window = WINDOW if len(steps) > FEW_ENTRIES else 1
    dots(axes, steps, rewards, "second")
    curve(axes, steps, running_mean(rewards, window), "second", "reward of\nchosen rows")
    for name, what in (("mean_pass_rate", "pass rate"), ("mean_spread", "spread")):
        curve(axes, *_logged(run, f"vade/{name}"), "third", f"{what} of\nall rows (belief)")
    note = (
        "all rows are drawn equally often"
        if run.sampler == "uniform"
        else "may fall by design: harder rows are chosen"
    )
    head(axes, "Reward", note, xlabel="optimiser step")


def _validation(axes: Any, view: View) -> None:
    evaluations = view.run.validation
    steps, scores = _values(evaluations, "step"), _values(evaluations, "score")
    curve(axes, steps, scores, "first", view.run.sampler, markevery=1)
    errors = _values(evaluations, "standard_error")
    axes.errorbar(steps, scores, yerr=errors, fmt="none", color=LIGHT["first"], capsize=3, elinewidth=1)
    known = not np.isnan(errors).all()
    note = "bars: one standard error to either side" if known else "without its error, which is not known"
    head(axes, "Validation score", note, xlabel="optimiser step")


def _rollouts(axes: Any, view: View) -> None:
    steps, rollouts = _values(view.run.selections, "global_step"), _values(view.run.selections, "rollouts")
    curve(axes, steps, rollouts, "first", "generated", drawstyle="steps-post")
    if view.run.trained:
        curve(axes, *np.array(view.run.trained).T, "third", "trained on")
    head(axes, "Rollouts", "completions so far", xlabel="optimiser step")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _pass_rates(axes: Any, view: View) -> None:
    edges = _pass_rate_edges(view.run.num_generations)
    centres = np.clip((edges[1:] + edges[:-1]) / 2, 0, 1)
    for (name, belief), part in zip(view.beliefs.items(), ("quiet", "second", "first"), strict=True):
        rates = belief.pass_rates
        shares = np.histogram(rates, bins=edges)[0] / max(len(rates), 1)
        label = f"{name}:\n{len(rates) / len(belief.visits):.0%} of rows"
        curve(axes, centres, shares, part, markevery=1, label=label)
    note = f"rows seen, in bins {edges[1] - edges[0]:.2g} wide around the points"
    head(axes, "Believed pass rates", note, xlabel="posterior mean", ylabel="share of those rows")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))  # at one place all lines end


def _pass_rate_edges(num_generations: int) -> NDArray[np.float64]:
    """Return edges of about ten bins, each around as many of the values (r + 1) / (G + 2) of a first visit.

    Bins that do not follow these values would show spikes.
    """
    values = num_generations + 2
    width = max(round(values / 10), 1)
    return (np.arange(0, values + width + 1, width) - 0.5) / values


def _visits(axes: Any, view: View) -> None:
    visits = view.beliefs["end"].visits
    width = -(-(int(visits.max()) + 1) // MOST_BINS)
    bins = np.arange(0, visits.max() + width + 1, width) - 0.5
    axes.hist(visits, bins=bins, color=LIGHT["first"], edgecolor=LIGHT["ground"], linewidth=0.8)
    note = f"all {len(visits):,} rows" + (f", {width} numbers a bar" if width > 1 else "")
    head(axes, "How often rows were chosen", note, xlabel="times chosen", ylabel="rows", yscale="log")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.0f}")  # an exponent would be too small to read


def _shares(axes: Any, view: View) -> None:
    """Bands of the shares, named at their right ends."""
    lines = view.run.selections
    width = max(WINDOW, len(lines) // MOST_COLUMNS)
    columns = [lines[i : i + width] for i in range(0, len(lines), width)]
    chosen = [np.concatenate([line["sample_index"] for line in column]) for column in columns]
    strata = _with_rest(np.asarray(view.strata), np.concatenate(chosen))
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
    head(axes, "Strata of the chosen rows", f"shares, mean of {width}", xlabel=_per_line(view.run), ylim=(0, 1))
    axes.margins(x=0)
    axes.grid(visible=False)


def _with_rest(strata: NDArray[Any], chosen: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of all rows, with one label for the strata that were chosen least."""
    common = [name for name, _ in Counter(strata[chosen].tolist()).most_common()]
    rest = common[MOST_BANDS - 1 :] if len(common) > MOST_BANDS else []
    return np.where(np.isin(strata, rest), f"{len(rest)} others", strata)


def _time(axes: Any, view: View) -> None:
    seconds = view.run.seconds
    names, values = list(seconds), np.array(list(seconds.values()))
    unit, scale = next((unit for unit in UNITS.items() if values.max() >= unit[1] / 2), ("seconds", 1))
    bars = axes.barh(names[::-1], values[::-1] / scale, color=LIGHT["first"], height=0.6)
    total = max(values.sum(), 1e-9)
    axes.bar_label(bars, [f"{value / scale:.3g} ({value / total:.0%})" for value in values[::-1]], padding=4)
    head(axes, "Time", f"{unit}, share of all that is counted", xlabel=unit)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.3)


def _per_line(run: Run) -> str:
    return "generation batch or refill" if run.refills else "generation batch"


def _values(entries: Iterable[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.array([np.nan if entry[name] is None else entry[name] for entry in entries], dtype=np.float64)


def _logged(run: Run, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    entries = [entry for entry in run.history if entry.get(name) is not None]
    return _values(entries, "step"), _values(entries, name)


def running_mean(values: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Mean over the last `window` values at each place (fewer at the start), NaN left out."""
    known = ~np.isnan(values)
    total = np.cumsum(np.where(known, values, 0.0))
    count = np.cumsum(known)
    total[window:] -= total[:-window].copy()
    count[window:] -= count[:-window].copy()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


Panel = Callable[[Any, View], None]
PANELS: dict[str, Panel] = {
    "useful": _useful,
    "validation": _validation,
    "rewards": _rewards,
    "rollouts": _rollouts,
    "pass_rates": _pass_rates,
    "visits": _visits,
    "strata": _shares,
    "time": _time,
}


def panels_of(view: View) -> dict[str, Panel]:
    """Return the panels for which the run has something to show."""
    there = {"validation": bool(view.run.validation), "strata": view.strata is not None}
    return {name: panel for name, panel in PANELS.items() if there.get(name, True)}
