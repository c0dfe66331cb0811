"""Pictures can be read: their letters on a page, and their series without colours."""

import json

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.support.finished_run import write_run
from trl_vade.selection.report.panels import draw_report
from trl_vade.selection.report.record import ROWS_FILE, read_run
from trl_vade.selection.report.style import SERIES, STYLES

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


def test_a_series_is_known_without_its_colour():
    assert len({*STYLES.values()}) == len(SERIES) + 1
