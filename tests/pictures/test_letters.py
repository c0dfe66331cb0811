"""Every picture of the project can be read on a page, which shows it 830 pixels wide."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from eval import compare
from eval.benchmarks.learning import pictures as learning
from eval.benchmarks.learning.curves import read
from tests.support.finished_run import write_run
from tests.support.marks import slow
from trl_vade.pictures.style import PAGE_INCHES
from trl_vade.selection.report.panels import draw_report, svg_panels
from trl_vade.selection.report.record import read_run

EVAL = Path(compare.__file__).parent
SMALLEST_ON_A_PAGE = 8  # points


def report(folder):
    run, names = read_run(write_run(folder)), ["a 1", "a 2", "b 1", "b 2", "c 1", "c 2"]
    tasks = {name: {"rows": 1, "chosen": [row]} for row, name in enumerate(names)}
    draw_report(replace(run, rows={"tasks": tasks}), folder / "p.png")


def panels(folder):
    svg_panels(read_run(write_run(folder)))


def of_learning(folder):
    assert len(learning.draw(read(EVAL / "learning.jsonl"), folder)) == 2


def comparison(folder):
    scores = [{"mean": 50.0 + i, "stderr": 0.5} for i in range(3)]
    rows = [{"title": f"Benchmark {n} (test)", "scores": scores} for n in range(7)]
    named = [{"name": f"you/some-model-{i}"} for i in range(3)]
    compare.draw({"rows": rows, "evaluations": named, "reference": 1}, folder / "p.png")


@pytest.mark.parametrize("draw", [report, *map(slow, (of_learning, panels, comparison))])
def test_no_letter_is_too_small_where_a_page_shows_it_or_outside_of_the_picture(draw, tmp_path, monkeypatch):
    saved, save = [], Figure.savefig

    def checked_save(figure, *args, **more):
        save(figure, *args, **more)
        figure.draw_without_rendering()
        texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        shown = min(1.0, PAGE_INCHES / figure.get_figwidth())
        smallest = min(texts, key=Text.get_fontsize)
        assert smallest.get_fontsize() * shown >= SMALLEST_ON_A_PAGE, smallest
        assert not [text for text in texts if "\\mathdefault" in text.get_text()]  # its exponents are smaller
        at_ticks = [
            text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in axis.get_ticklabels()
        ]
        for box in (Text.get_window_extent(text) for text in texts if text not in at_ticks):
            assert min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) >= -1
        saved.append(len(texts))

    monkeypatch.setattr(Figure, "savefig", checked_save)
    draw(tmp_path)
    assert saved
    assert min(saved) > 5
