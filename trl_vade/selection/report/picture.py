"""`vade_report.png`: five or six panels that show what the sampler did."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .record import Run

# One hue a task and one shade a level reads better than twelve unrelated colours.
HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys")
WINDOW = 5  # generation batches in the running mean, and in one column of the shares
FEW_ENTRIES = 40  # a history of so few entries is drawn as it is


def draw_report(run: Run, path: Path, strata: Sequence[str] | None) -> None:
    """Draw the panels of `run` into the PNG `path`; `strata`, as in `summary.write_report`, get the sixth."""
    figure = Figure(figsize=(18, 8.5), layout="constrained")  # no pyplot: a library must not choose the user's backend
    last = "visits" if strata is None else "strata"
    panels = figure.subplot_mosaic([["ratio", "scores", "rollouts"], ["posterior", "visits", last]])
    batches = [line for line in run.selections if "refill" not in line]
    refills = f", {run.refills} refills" if run.refills else ""
    figure.suptitle(
        f"{run.sampler} sampler: {len(batches)} generation batches of {len(batches[-1]['sample_index'])} rows{refills}"
    )
    _ratio(panels["ratio"], run)
    _scores(panels["scores"], run)
    _rollouts(panels["rollouts"], run)
    _posterior(panels["posterior"], run)
    _visits(panels["visits"], run)
    if strata is not None:
        _shares(panels["strata"], run, np.asarray(strata))
    figure.savefig(path, dpi=110)


def _per_line(run: Run) -> str:
    return "generation batch or refill" if run.refills else "generation batch"


def _ratio(axes: Any, run: Run) -> None:
    steps = np.array([line["step"] for line in run.selections])
    predicted = np.array([line["predicted_effective_ratio"] for line in run.selections])
    realised = run.effective_gradient_ratio
    axes.plot(steps, realised, ".", color="tab:blue", alpha=0.35, markersize=4)
    axes.plot(steps, running_mean(realised), color="tab:blue", label="realised")
    axes.plot(steps, running_mean(predicted), color="tab:orange", linestyle="--", label="predicted by the posterior")
    axes.set(title="Effective gradient ratio", xlabel=_per_line(run), ylabel="share of groups", ylim=(0, 1))
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)


def _scores(axes: Any, run: Run) -> None:
    logged = [(entry["step"], entry["reward"]) for entry in run.history if entry.get("reward") is not None]
    if logged:
        steps, rewards = np.array(logged).T
        axes.plot(steps, rewards, ".", color="tab:grey", alpha=0.35, markersize=4)
        # Entries logged every few steps are means already, and a mean over several of them would lag behind.
        window = WINDOW if len(steps) > FEW_ENTRIES else 1
        axes.plot(steps, running_mean(rewards, window), color="tab:grey", label="reward on the chosen rows")
    validation = run.validation
    if validation:
        axes.plot(
            [evaluation["step"] for evaluation in validation],
            [evaluation["score"] for evaluation in validation],
            "o-",
            color="tab:green",
            label="validation score",
        )
    axes.set(title="Reward and validation score", xlabel="optimiser step")
    if axes.get_lines():
        axes.legend(loc="best")
    axes.grid(alpha=0.3)


def _rollouts(axes: Any, run: Run) -> None:
    logged = [(line["global_step"], line["rollouts"]) for line in run.selections]
    axes.step(*np.array(logged).T, where="post", color="tab:blue", label="generated")
    if run.trained:
        axes.plot(*np.array(run.trained).T, color="tab:green", label="trained on")
    axes.set(title="Rollouts so far", xlabel="optimiser step")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)


def _posterior(axes: Any, run: Run) -> None:
    """Rows without a visit are left out: their mean is the prior's 1/2 and would be one spike over all else."""
    last = len(run.lines)
    for step, name, colour in (
        (max(last // 10, 1), "start", "tab:grey"),
        (max(last // 2, 1), "middle", "tab:orange"),
        (last, "end", "tab:blue"),
    ):
        posterior = run.posterior_at(step)
        seen = posterior.visits > 0
        shares, edges = np.histogram(posterior.posterior_mean[seen], bins=np.arange(21) / 20)
        label = f"{name}: batch {step}, {seen.mean():.0%} of rows seen"
        axes.stairs(shares / max(seen.sum(), 1), edges, color=colour, label=label, linewidth=1.8)
    axes.set(title="Posterior pass rates of the rows seen", xlabel="posterior mean", ylabel="share of those rows")
    axes.legend()
    axes.grid(alpha=0.3)


def _shares(axes: Any, run: Run, strata: NDArray[Any]) -> None:
    names = sorted(set(strata.tolist()))
    columns = [run.selections[i : i + WINDOW] for i in range(0, len(run.selections), WINDOW)]
    chosen = [np.concatenate([line["sample_index"] for line in column]) for column in columns]
    shares = np.array([[np.mean(strata[rows] == name) for rows in chosen] for name in names])  # (strata, columns)
    steps = [column[0]["step"] for column in columns]
    axes.stackplot(steps, shares, labels=names, colors=_shades(names))
    axes.set(title="Share of each stratum among the chosen rows", xlabel=_per_line(run), ylim=(0, 1))
    axes.margins(x=0)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")


def _visits(axes: Any, run: Run) -> None:
    visits = run.posterior_at(len(run.lines)).visits
    axes.hist(visits, bins=np.arange(visits.max() + 2) - 0.5, color="tab:blue")
    axes.set(title="How often each row was chosen", xlabel="times chosen", ylabel="rows", yscale="log")
    axes.grid(alpha=0.3)


def _shades(names: Sequence[str]) -> list[Any]:
    """Return a colour for each `"<task> <level>"`: the task gives the hue, the place of the level the shade."""
    tasks = list(dict.fromkeys(name.rpartition(" ")[0] or name for name in names))
    colours = []
    for name in names:
        task = name.rpartition(" ")[0] or name
        levels = [other for other in names if (other.rpartition(" ")[0] or other) == task]
        hue = matplotlib.colormaps[HUES[tasks.index(task) % len(HUES)]]
        colours.append(hue(0.35 + 0.5 * (levels.index(name) + 1) / len(levels)))
    return colours


def running_mean(values: NDArray[np.float64], window: int = WINDOW) -> NDArray[np.float64]:
    """Mean over the last `window` values at each place (fewer at the start), NaN left out."""
    known = ~np.isnan(values)
    total = np.cumsum(np.where(known, values, 0.0))
    count = np.cumsum(known)
    total[window:] -= total[:-window].copy()
    count[window:] -= count[:-window].copy()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
