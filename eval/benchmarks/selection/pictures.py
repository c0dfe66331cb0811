"""The picture: seconds of a draw, and bytes of a saved posterior, by the rows of the pool."""

import statistics

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter

from .tables import BYTES, TIMES, unit

# Of Okabe and Ito, told apart by colour-blind readers; every line also has its name at its end.
STYLES = {"ours": ("#D55E00", "o"), "numpy": ("#0072B2", "s"), "numpy gamma": ("#56B4E9", "D")}
STYLES |= {"torch": ("#009E73", "^"), "loop": ("#666666", "v")}
NAMES = {"numpy": "numpy", "numpy gamma": "numpy, gamma", "torch": "torch", "loop": "Python loop"}


def draw(figures, path, percent=1.0):
    """All contenders with `percent` of the rows visited, and ours with other shares in a lighter tone."""
    cells = figures["cells"]
    shares = sorted({cell["percent"] for cell in cells})
    percent = percent if percent in shares else shares[0]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    _panel(panels[0], cells, percent, lambda cell: statistics.median(cell["draw"]) if cell.get("draw") else None)
    _panel(panels[1], cells, percent, lambda cell: cell.get("file_bytes"))
    for axes, title, units in ((panels[0], "seconds of a draw", TIMES), (panels[1], "size of the saved state", BYTES)):
        axes.set(title=title, xlabel=f"rows of the data set ({percent:g} % visited where not said)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, units=units: _tick(value, units)))
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
    sizes = [cell["rows"] for cell in cells]  # the axis goes on to the right, where the names are
    axes.set_xticks([10**power for power in range(1, 12) if min(sizes) <= 10**power <= max(sizes)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    ends = []
    # The light lines first, so that the others lie over them.
    for (contender, share), points in sorted(lines.items(), key=lambda line: line[0][1] == percent):
        main, (colour, marker) = share == percent, STYLES[contender]
        style = {"color": colour, "alpha": 1.0 if main else 0.4, "linewidth": 2 if main else 1.2}
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, y, marker=marker, markersize=5 if main else 3, **style)
        name = NAMES.get(contender, f"ours, {share:g} %")
        ends.append((x[-1], y[-1], name, colour, "bold" if contender == "ours" and main else "normal"))
    _label(axes, ends)


def _label(axes, ends):
    """Write each name to the right of its line, moved up where it would lie over the one below; the name of a line
    that ends early goes above its end."""
    if not ends:
        return
    last = max(end[0] for end in ends)
    axes.margins(y=0.08)
    axes.figure.draw_without_rendering()  # the limits, and so the places in points, are final
    axes.set_xlim(right=axes.get_xlim()[1] * (last / axes.get_xlim()[0]) ** 0.45)
    top = -99.0
    for x, y, name, colour, weight in sorted(ends, key=lambda end: end[1]):
        style = {"color": colour, "weight": weight, "fontsize": 9, "textcoords": "offset points"}
        style["path_effects"] = [withStroke(linewidth=2.5, foreground="white")]  # where a line passes behind it
        if x < last:
            axes.annotate(name, (x, y), (2, 6), ha="right", **style)
            continue
        place = axes.transData.transform((x, y))[1] * 72 / axes.figure.dpi
        top = max(place, top + 10.5)
        axes.annotate(name, (x, y), (7, top - place), va="center", **style)
