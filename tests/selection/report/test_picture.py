"""The panels of a run as one PNG and as SVG for a page, from an output directory that the real sampler wrote."""

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.finished_run import BATCHES, HISTORY, NAN, UNSCORED, write_run
from tests.support.marks import slow
from trl_vade.pictures.palette import LIGHT
from trl_vade.selection.report.panels import PANELS, _edges, running_mean, svg_panels
from trl_vade.selection.report.record import ROWS_FILE, read_run
from trl_vade.selection.report.writing import REPORT_FILE, write_report

STRATA = ["chart 1", "chart 2", "colour 1", "colour 2", "count 1", "count 2"]


def run_with(folder, strata=STRATA, **more):
    """A run whose trainer kept the labels of its rows."""
    tasks = {name: {"rows": 1, "chosen": [row]} for row, name in enumerate(strata)}
    (write_run(folder, **more) / ROWS_FILE).write_text(json.dumps({"tasks": tasks}))
    return read_run(folder)


def has_colour(path, part):
    """Whether the PNG has more than a few pixels of this part of the palette."""
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        colours = picture.convert("RGB").getcolors(1_000_000)
    wanted = tuple(bytes.fromhex(LIGHT[part][1:]))
    return sum(count for count, colour in colours if colour == wanted) > 20


def curves(svg):
    """The names at the ends of the curves of a panel, and all its other words."""
    return " ".join(ElementTree.fromstring(svg).itertext())


@pytest.fixture(scope="module")
def panels(tmp_path_factory):
    """All panels of a run, with strata and a known number of validation answers."""
    return svg_panels(run_with(tmp_path_factory.mktemp("run"), validation_answers=100))


def test_every_panel_is_one_svg_element_whose_words_are_text_and_that_says_what_it_shows(panels):
    assert list(panels) == list(PANELS)
    for svg in panels.values():
        root = ElementTree.fromstring(svg)
        assert svg.startswith("<svg ")
        assert (root.tag, root.get("role")) == ("{http://www.w3.org/2000/svg}svg", "img")
        assert len(root.get("aria-label").split()) > 3
        assert not re.search("<metadata|<style|<!--.*20[0-9][0-9]|DejaVu", svg)  # the letters are the page's


@pytest.mark.slow
def test_the_panels_of_a_long_run_are_not_large(tmp_path):
    history = [{"step": step, "reward": step % 7 / 7, "vade/mean_pass_rate": step % 5 / 5} for step in range(2000)]
    run = run_with(tmp_path, batches=BATCHES * 125, history=history)
    assert max(map(len, svg_panels(run).values())) < 120_000


def test_every_colour_is_one_of_the_page_and_no_other(panels):
    for name, svg in panels.items():
        assert not re.findall(r"#[0-9a-f]{6}", re.sub(r"var\(--[a-z]+, #[0-9a-f]{6}\)", "", svg)), name
        assert "var(--" in svg
        # A presentation attribute, unlike a style, takes no variable.
        assert not re.search(r'(fill|stroke|color)="', svg)


def test_panels_can_stand_in_one_page(panels):
    page = "".join(panels.values())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len({*ids})
    assert {*re.findall(r'(?:href="|url\()#([^")]+)', page)} <= {*ids}


def test_curves_have_their_names(panels):
    for name in ("realised", "predicted", "even draw"):
        assert name in curves(panels["useful"])
    assert "reward of" in curves(panels["rewards"])
    assert "pass rate of" in curves(panels["rewards"])
    assert "thompson" in curves(panels["validation"])
    assert "standard error" in curves(panels["validation"])
    named = {*ElementTree.fromstring(panels["strata"]).itertext()} & {*STRATA}
    assert named == {*STRATA} - {"colour 2"}  # of which no row was chosen


@pytest.mark.slow
def test_an_equal_run_gives_an_equal_picture_and_panels_without_data_are_left_out(tmp_path):
    run = read_run(write_run(tmp_path, history=[]))
    drawn = svg_panels(run)
    assert drawn == svg_panels(run)
    assert drawn.keys() == PANELS.keys() - {"strata", "validation"}


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_pictures")
def test_a_picture_has_the_colours_of_its_parts(tmp_path):
    write_report(tmp_path, run_with(tmp_path))
    assert all(has_colour(tmp_path / REPORT_FILE, part) for part in ("first", "second", "third"))


@pytest.mark.slow
def test_of_many_strata_the_rarest_are_one_band(tmp_path):
    strata = np.array([f"task{i} {level}" for i in range(8) for level in (1, 2, 3)])
    run = run_with(tmp_path, strata.tolist(), num_rows=24, batches=BATCHES * 2)
    chosen = {strata[row] for line in run.lines for row in line["sample_index"]}
    assert len(chosen) > 12
    words = curves(svg_panels(run)["strata"])
    assert f"{len(chosen) - 11} others" in words
    assert sum(name in words for name in chosen) == 11


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("batches", "history"),
    [
        slow(BATCHES[:1], []),
        ([(UNSCORED, UNSCORED)] * 2, HISTORY),
        slow(BATCHES[:2], [{"step": 0, "eval_rewards/accuracy/mean": 0.5}]),
        slow(BATCHES * 8, [{"step": 1, "reward": 1.0}]),
    ],
)
@pytest.mark.usefixtures("drawn_pictures")
def test_short_long_and_unscored_runs_are_drawn_without_a_warning(tmp_path, batches, history):
    write_report(tmp_path, run_with(tmp_path, batches=batches, history=history))
    with Image.open(tmp_path / REPORT_FILE) as picture:
        assert picture.width > 1000


@pytest.mark.parametrize("num_generations", [2, 3, 4, 8, 16, 64])
def test_the_bins_of_pass_rates_have_no_spikes_from_the_group_size(num_generations):
    """With all numbers of successes equally likely, all bins but the last are equal."""
    edges = _edges(num_generations)
    counts = np.histogram(np.arange(num_generations + 1) / num_generations, bins=edges)[0]
    assert counts.sum() == num_generations + 1
    assert {*counts[:-2].tolist()} <= {counts[0]}
    assert len(counts) <= 17


# ---------------------------------------------------------------------------------------------------- running mean


def naive_running_mean(values, window):
    means = []
    for end in range(1, len(values) + 1):
        known = [value for value in values[max(end - window, 0) : end] if value == value]
        means.append(sum(known) / len(known) if known else NAN)
    return means


@given(st.lists(st.one_of(st.just(NAN), st.floats(-10, 10)), max_size=40), st.integers(1, 12))
def test_the_running_mean_is_that_of_a_plain_loop(values, window):
    ours = running_mean(np.array(values, dtype=np.float64), window)
    np.testing.assert_allclose(ours, naive_running_mean(values, window), atol=1e-12)
