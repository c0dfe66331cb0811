"""The panels of a run as one picture, `vade_report.png`, and each as SVG for the HTML report."""

from pathlib import Path

from trl_vade.pictures.style import WIDEST, drawing, spread_names
from trl_vade.pictures.svg import inline_svg

from .panels import panels_of
from .view import View

PANEL = (WIDEST / 2, 3.0)  # inches


def draw_report(view: View, path: Path) -> None:
    """Draw all panels of `view` into the PNG `path`, two in a row; a last one alone takes the whole row."""
    panels = panels_of(view)
    names = list(panels)
    rows = [[names[i], names[min(i + 1, len(names) - 1)]] for i in range(0, len(names), 2)]
    with drawing(WIDEST, PANEL[1] * len(rows) + 0.4) as figure:
        figure.suptitle(view.title, fontweight="bold")
        for name, axes in figure.subplot_mosaic(rows).items():
            panels[name](axes, view)
        spread_names(figure)
        figure.savefig(path, dpi=150)


def svg_panels(view: View) -> dict[str, str]:
    """Return each panel of `view` as `inline_svg`, by its name in `PANELS`."""
    drawn = {}
    for name, panel in panels_of(view).items():
        with drawing(*PANEL) as figure:
            axes = figure.subplots()
            panel(axes, view)
            spread_names(figure)
            drawn[name] = inline_svg(figure, f"vade-{name}", axes.get_label())
    return drawn
