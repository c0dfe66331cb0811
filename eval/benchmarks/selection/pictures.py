"""The picture: seconds of a draw, and bytes of a saved posterior, by the rows of the pool."""

import statistics

import numpy as np
from matplotlib.ticker import EngFormatter, FuncFormatter

from trl_vade.pictures.style import WIDEST, curve, drawing, head, spread_names

from .tables import BYTES, TIMES, unit

PARTS = {"ours": "fourth", "numpy": "first", "numpy gamma": "sixth", "torch": "third", "loop": "quiet"}
NAMES = {"numpy": "numpy", "numpy gamma": "numpy, gamma", "torch": "torch", "loop": "Python loop"}


def draw(figures, path, percent=1.0):
    """All contenders with `percent` of the rows visited, and ours with other shares in a lighter tone."""
    cells = figures["cells"]
    shares = sorted({cell["percent"] for cell in cells})
    percent = percent if percent in shares else shares[0]
    with drawing(WIDEST, 4.2) as figure:
        panels = figure.subplots(1, 2)
        _panel(panels[0], cells, percent, lambda cell: statistics.median(cell["draw"]) if cell.get("draw") else None)
        _panel(panels[1], cells, percent, lambda cell: cell.get("file_bytes"))
        for axes, title, units in (
            (panels[0], "Time of a draw", TIMES),
            (panels[1], "Size of the saved state", BYTES),
        ):
            head(axes, title, f"{percent:g} % of the rows visited where not said", xlabel="rows of the data set")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, units=units: _tick(value, units)))
        spread_names(figure)
        figure.savefig(path, dpi=150)


def _tick(value, units):
    name, scale = unit(value, units)
    return f"{value / scale:g} {name}"


def _panel(axes, cells, percent, value):
    lines = {}
    for cell in cells:
        ours, found = cell["contender"] == "ours", value(cell)
        if found is not None and (ours or cell["percent"] == percent):
            lines.setdefault((cell["contender"], cell["percent"]), []).append((cell["rows"], found))
    axes.set(xscale="log", yscale="log")
    sizes = [cell["rows"] for cell in cells]
    axes.set_xticks([10**power for power in range(1, 12) if min(sizes) <= 10**power <= max(sizes)])
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.minorticks_off()
    # The light lines first, so that the others lie over them.
    for (contender, share), points in sorted(lines.items(), key=lambda line: line[0][1] == percent):
        style = {} if share == percent else {"alpha": 0.45, "linewidth": 1.2, "markersize": 3}
        name = NAMES.get(contender, f"ours, {share:g} %")
        curve(axes, *np.array(sorted(points)).T, PARTS[contender], name, markevery=1, **style)
