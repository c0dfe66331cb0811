"""How pictures look: their colours and letters, a curve and a heading.

Each two series differ by a Delta E of 30, also for a deuteranope and a protanope, and also from `quiet`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

LIGHT = {
    **{"ground": "#ffffff", "ink": "#1b1f24", "quiet": "#5c6670", "grid": "#d5dae0"},
    **{"first": "#263988", "second": "#c47803", "third": "#4e975e"},
    **{"fourth": "#8b2e03", "fifth": "#6c8ac4", "sixth": "#1483f8"},
}
SERIES = ("first", "second", "third", "fourth", "fifth", "sixth")
STYLES: dict[str, tuple[str, Any]] = {  # marker and line style: a series is known without its colour
    "quiet": ("", (0, (1, 1.5))),
    "first": ("o", "-"),
    "second": ("s", (0, (6, 1.5))),
    "third": ("^", (0, (6, 1.5, 1, 1.5))),
    "fourth": ("D", (0, (3, 1))),
    "fifth": ("v", (0, (3, 1, 1, 1, 1, 1))),
    "sixth": ("X", (0, (8, 2))),
}
SMALLEST = 10  # points; the text of every part
WIDEST = 9.2  # inches of a figure: on a page, `SMALLEST` points are still 9
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": SMALLEST,
    **dict.fromkeys(("axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALLEST),
    **{"axes.titlesize": SMALLEST + 1, "axes.titleweight": "bold", "axes.titlelocation": "left"},
    **dict.fromkeys(("text.color", "axes.titlecolor"), LIGHT["ink"]),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), LIGHT["quiet"]),
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
    **{"axes.grid": True, "grid.color": LIGHT["grid"], "grid.linewidth": 0.8},
    **{"lines.linewidth": 1.8, "lines.markersize": 4.5, "legend.frameon": False},
    "text.parse_math": False,  # a dollar is a dollar
    "path.simplify_threshold": 1.0,  # pixels; a long run makes no large SVG
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Give a figure of so many inches; what is drawn and saved inside has the style of all pictures."""
    with matplotlib.rc_context(_SETTINGS):
        # No pyplot: a library must not choose the user's backend.
        yield Figure(figsize=(width, height), layout="constrained")


def curve(axes: Any, x: Any, y: Any, part: str, name: str = "", **more: Any) -> None:
    """Draw a curve with the colour, marker and line style of its part; `name` is for the legend."""
    marker, line = STYLES[part]
    style = {"marker": marker, "linestyle": line, "color": LIGHT[part], "markevery": max(len(x) // 8, 1)}
    axes.plot(x, y, **{**style, "label": name or None, **more})


def head(axes: Any, title: str, note: str, **labels: Any) -> None:
    """Give the axes a title, a line below it that says what is drawn, and labels."""
    axes.set_title(title, pad=20)
    axes.annotate(note, (0, 1), (0, 5), textcoords="offset points", xycoords="axes fraction", color=LIGHT["quiet"])
    axes.set(**labels)


def short(text: str, longest: int = 30) -> str:
    """Return a text, or its beginning if it is too long for a picture."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
