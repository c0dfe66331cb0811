"""The parts of a drawing: names beside their curves, bands, and letters that can be read on a page."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from trl_vade.pictures.style import PAGE_INCHES, SMALLEST, WIDEST, _apart, band_styles, curve, drawing, spread_names


def names_of(figure):
    return [text for axes in figure.axes for text in axes.texts]


def test_names_of_curves_that_end_at_one_place_lie_over_no_other_and_stay_inside():
    with drawing(4.6, 3.0) as figure:
        axes = figure.subplots()
        for number, part in enumerate(("first", "second", "third", "fourth", "quiet")):
            curve(axes, np.arange(9), np.full(9, 1.0), part, f"name {number}\nin two lines"[: 7 if number % 2 else 20])
        curve(axes, np.arange(9), np.linspace(0, 1, 9), "fifth", "costs $5 or $6")
        curve(axes, [], [], "sixth", "nothing to draw")
        spread_names(figure)
        boxes = sorted((Text.get_window_extent(text) for text in names_of(figure)), key=lambda box: box.y0)
    assert len(boxes) == 6
    assert all(below.y1 <= above.y0 + 0.1 for below, above in pairwise(boxes))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_names_with_room_around_them_stay_where_they_are_and_all_keep_their_order(wanted):
    wanted = sorted(wanted)
    places = _apart(wanted, [10.0] * len(wanted), 200.0)
    assert all(after - before >= 10 - 1e-9 for before, after in pairwise(places))
    if all(after - before >= 10 for before, after in pairwise(wanted)):
        assert places == wanted


def test_the_smallest_letters_are_large_enough_on_a_page_that_shows_the_widest_figure():
    assert SMALLEST * PAGE_INCHES / WIDEST >= 8


@pytest.mark.parametrize("names", [["a 1", "a 2", "b 1", "b 2"], [f"task{number}" for number in range(12)]])
def test_bands_beside_one_another_have_different_colours_and_the_task_gives_the_hue(names):
    styles = band_styles(names)
    drawn = [(style["part"], style["alpha"]) for style in styles.values()]
    assert all(one != following for one, following in pairwise(drawn))
    assert len({*drawn}) == len(names)
