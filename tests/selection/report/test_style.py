"""Pictures can be read: their letters on a page, and their colours by colour-blind readers, in light and in dark."""

import json
from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.support.finished_run import write_run
from trl_vade.selection.report.panels import draw_report
from trl_vade.selection.report.record import ROWS_FILE, read_run
from trl_vade.selection.report.style import LIGHT, SERIES, STYLES

PAGE_INCHES = 830 / 96  # as wide as README and documentation show a picture
SMALLEST_ON_A_PAGE = 8  # points


def report(folder):
    names = ["a 1", "a 2", "b 1", "b 2", "c 1", "a stratum of a name that is too long for a picture 2"]
    (write_run(folder) / ROWS_FILE).write_text(json.dumps({"tasks": {name: [i] for i, name in enumerate(names)}}))
    draw_report(read_run(folder), folder / "p.png")


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_pictures")
def test_no_letter_is_too_small_where_a_page_shows_it_or_outside_of_the_picture(tmp_path, monkeypatch):
    saved, save = [], Figure.savefig

    def checked_save(figure, *args, **more):
        save(figure, *args, **more)
        figure.draw_without_rendering()
        texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        smallest = min(texts, key=Text.get_fontsize)
        assert smallest.get_fontsize() * min(1.0, PAGE_INCHES / figure.get_figwidth()) >= SMALLEST_ON_A_PAGE, smallest
        axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
        at_ticks = [text for axis in axes for text in axis.get_ticklabels()]
        for text in (text for text in texts if text not in at_ticks):
            box = text.get_window_extent()
            assert min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) >= -1, text
        saved.append(len(texts))

    monkeypatch.setattr(Figure, "savefig", checked_save)
    report(tmp_path)
    assert min(saved) > 5


# Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
DARK = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])  # CSS: hue-rotate(180deg)
CURVES = ("first", "second", "third", "quiet")  # of the panels


def channels(colour):
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb, sight):
    relative = XYZ @ np.clip(np.array(SIGHT[sight]) @ linear(rgb), 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    darker, lighter = sorted(float(XYZ[1] @ linear(rgb)) for rgb in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(
    ("dark", "card", "parts", "least"), [(0, "#f5f6f7", (*SERIES, "quiet"), 30), (1, "#1b1f25", CURVES, 28)]
)
def test_each_two_series_differ_for_every_sight_and_each_stands_out_from_the_page(dark, card, parts, least):
    """In dark the page turns the colours of the pictures round."""
    colours = {part: channels(LIGHT[part]) for part in parts}
    if dark:
        colours = {part: np.clip(DARK @ (1 - rgb), 0, 1) for part, rgb in colours.items()}
    for sight in SIGHT:  # by a Delta E of 1976; 2 can just be seen side by side
        seen = {part: lab(rgb, sight) for part, rgb in colours.items()}
        apart = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in combinations(parts, 2)}
        assert min(apart.values()) >= least, (sight, min(apart, key=apart.get))
    assert min(contrast(rgb, channels(card)) for rgb in colours.values()) >= 3  # WCAG 2, for graphics


def test_a_series_is_known_without_its_colour():
    assert len({*STYLES.values()}) == len(SERIES) + 1
