"""The colours can be told apart, by colour-blind readers too, and stand out from a light and a dark page."""

from itertools import combinations

import numpy as np
import pytest

from trl_vade.pictures.palette import PALETTE, SERIES
from trl_vade.pictures.style import STYLES

# Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
LEAST_DIFFERENCE = 30  # Delta E of 1976; 2 can just be seen side by side
LEAST_CONTRAST = 3.0  # WCAG 2, for graphics


def linear(colour):
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(colour, sight):
    relative = XYZ @ np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    darker, lighter = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measures_agree_with_known_values():
    assert lab("#ff0000", "normal") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_each_two_series_differ_for_every_sight_and_each_stands_out_from_the_page(page):
    colours = {part: PALETTE[part][page] for part in (*SERIES, "quiet")}
    for sight in SIGHT:
        least = min(
            (np.linalg.norm(lab(colours[a], sight) - lab(colours[b], sight)), a, b)
            for a, b in combinations(colours, 2)
        )
        assert least[0] >= LEAST_DIFFERENCE, (sight, *least)
    for ground in (PALETTE[part][page] for part in ("ground", "card")):
        assert min(contrast(colour, ground) for colour in colours.values()) >= LEAST_CONTRAST
        assert min(contrast(PALETTE[part][page], ground) for part in ("ink", "quiet")) >= 4.5  # of text


def test_a_series_is_known_without_its_colour_and_a_colour_has_one_part():
    assert len({STYLES[part] for part in (*SERIES, "quiet")}) == len(SERIES) + 1
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)
