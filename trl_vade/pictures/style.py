"""The parts of a drawing: a figure, a curve, names at the ends of the curves, bands, and a heading."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from .palette import LIGHT, SERIES

SMALLEST = 10  # points; the text of every part
PAGE_INCHES = 830 / 96  # as wide as README and documentation show a picture
WIDEST = 9.2  # inches of a figure: on a page, `SMALLEST` points are still 9
MOST_POINTS = 400  # of a curve; more would only make an SVG larger
STYLES: dict[str, tuple[str, Any]] = {  # part of the palette: marker, line style
    "ink": ("", "-"),
    "quiet": ("", (0, (1, 1.5))),
    "first": ("o", "-"),
    "second": ("s", (0, (6, 1.5))),
    "third": ("^", (0, (6, 1.5, 1, 1.5))),
    "fourth": ("D", (0, (3, 1))),
    "fifth": ("v", (0, (3, 1, 1, 1, 1, 1))),
    "sixth": ("X", (0, (8, 2))),
}
_END = "end of a curve"
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": SMALLEST,
    **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALLEST),
    **{"axes.titlesize": SMALLEST + 1, "axes.titleweight": "bold", "axes.titlelocation": "left"},
    **dict.fromkeys(("text.color", "axes.titlecolor"), LIGHT["ink"]),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), LIGHT["quiet"]),
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
    **{"axes.grid": True, "grid.color": LIGHT["grid"], "grid.linewidth": 0.8},
    **{"axes.facecolor": LIGHT["ground"], "figure.facecolor": LIGHT["ground"]},
    **{"lines.linewidth": 1.8, "lines.markersize": 4.5, "legend.frameon": False},
    "text.parse_math": False,  # a dollar is a dollar
    **{"svg.fonttype": "none", "svg.hashsalt": "trl_vade"},  # text is text, and equal drawings are equal files
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Give a figure of so many inches; what is drawn and saved inside has the style of all pictures."""
    with matplotlib.rc_context(_SETTINGS):
        # No pyplot: a library must not choose the user's backend.
        yield Figure(figsize=(width, height), layout="constrained")


def dots(axes: Any, x: Any, y: Any, part: str) -> None:
    """Draw the single values behind a curve of their means; of many, some."""
    shown = np.arange(0, len(x), len(x) // MOST_POINTS + 1)
    axes.plot(x[shown], y[shown], ".", color=LIGHT[part], alpha=0.35, markersize=4)


def curve(axes: Any, x: Any, y: Any, part: str, name: str = "", **more: Any) -> None:
    """Draw a curve with the colour, marker and line style of its part of the palette; `name` goes to its end."""
    if len(x) > MOST_POINTS:
        shown = np.linspace(0, len(x) - 1, MOST_POINTS, dtype=int)
        x, y = x[shown], y[shown]
    marker, line = STYLES[part]
    style = {"marker": marker, "linestyle": line, "color": LIGHT[part], "markevery": max(len(x) // 8, 1)}
    axes.plot(x, y, **{**style, **more})
    known = np.flatnonzero(~np.isnan(np.asarray(y, dtype=float)))
    if name and len(known):
        name_end(axes, x[known[-1]], y[known[-1]], name, part)


def name_end(axes: Any, x: Any, y: Any, name: str, part: str, alpha: float = 1.0) -> None:
    """Write a name to the right of the axes, with a line in the colour of its part to the point (x, y)."""
    axes.annotate(
        short(name),
        (x, y),
        (1.06, y),
        textcoords=("axes fraction", "data"),
        va="center",
        label=_END,
        annotation_clip=False,
        arrowprops={"arrowstyle": "-", "color": LIGHT[part], "alpha": alpha, "shrinkA": 1, "shrinkB": 0},
    )


def spread_names(figure: Figure) -> None:
    """Move the names at the ends of curves apart where they would lie over one another. Call it before saving."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")  # the places are final
    for axes in figure.axes:
        names = [text for text in axes.texts if text.get_label() == _END]
        names.sort(key=lambda text: text.xyann[1])
        heights = [Text.get_window_extent(text).height * 1.05 for text in names]
        wanted = [axes.transData.transform((0, text.xyann[1]))[1] for text in names]
        for text, place in zip(names, _apart(wanted, heights, axes.bbox.y1), strict=True):
            text.xyann = (text.xyann[0], axes.transData.inverted().transform((0, place))[1])


def _apart(wanted: Sequence[float], heights: Sequence[float], top: float) -> list[float]:
    """Return places near the wanted ones, at least half of both heights apart and below `top`."""
    places: list[float] = []
    below = -np.inf
    for want, height in zip(wanted, heights, strict=True):
        places.append(max(want, below + height / 2))
        below = places[-1] + height / 2
    for number in reversed(range(len(places))):
        half = heights[number] / 2
        places[number] = min(places[number], top - half)
        top = places[number] - half
    return places


def head(axes: Any, title: str, note: str, **labels: Any) -> None:
    """Give the axes a title, a line below it that says what is drawn, and labels."""
    axes.set_title(title, pad=20)
    axes.set_label(f"{title}: {note}")
    axes.annotate(note, (0, 1), (0, 5), textcoords="offset points", xycoords="axes fraction", color=LIGHT["quiet"])
    axes.set(**labels)


def band_styles(names: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    """Return colour and opacity of a band for each `"<task> <level>"`: the task gives the hue, the level the opacity.

    After six tasks the hues come again, lighter.
    """
    tasks = list(dict.fromkeys(_task(name) for name in names))
    styles = {}
    for name in names:
        levels = [other for other in names if _task(other) == _task(name)]
        turn, hue = divmod(tasks.index(_task(name)), len(SERIES))
        part, opacity = SERIES[hue], (1 - 0.65 * levels.index(name) / max(len(levels) - 1, 1)) * 0.6**turn
        styles[name] = {"color": LIGHT[part], "alpha": opacity, "part": part}
    return styles


def _task(name: str) -> str:
    return name.rpartition(" ")[0] or name


def short(text: str, longest: int = 30) -> str:
    """Return a text, or its beginning if it is too long for a picture."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
