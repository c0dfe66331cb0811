"""The panels of a run as one PNG and as SVG for a page, from an output directory that the real sampler wrote."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from tests.support.finished_run import BATCHES, HISTORY, NAN, UNSCORED, write_run
from tests.support.marks import slow
from trl_vade.selection.report.panels import _edges, draw_report, running_mean
from trl_vade.selection.report.record import ROWS_FILE, read_run
from trl_vade.selection.report.style import LIGHT

pytestmark = pytest.mark.usefixtures("drawn_pictures")
STRATA = ["chart 1", "chart 2", "colour 1", "colour 2", "count 1", "count 2"]
PANELS = ["Useful groups", "Validation score", "Reward", "Chosen groups", "Strata"]


def run_with(folder, strata=STRATA, **more):
    """A run whose trainer kept the labels of its rows."""
    tasks = {name: [row] for row, name in enumerate(strata)}
    (write_run(folder, **more) / ROWS_FILE).write_text(json.dumps({"tasks": tasks}))
    return read_run(folder)


@pytest.fixture
def legends(monkeypatch):
    """The words of the legends of the figures that are saved, the picture of all panels first."""
    found, save = [], Figure.savefig

    def saved(figure, *args, **more):
        legends = [axes.get_legend() for axes in figure.axes]
        found.append({text.get_text() for legend in legends if legend for text in legend.get_texts()})
        save(figure, *args, **more)

    monkeypatch.setattr(Figure, "savefig", saved)
    return found


def test_a_picture_has_all_curves_with_their_names_and_so_has_each_panel(tmp_path, legends):
    drawn = draw_report(run_with(tmp_path), tmp_path / "p.png")
    assert list(drawn) == PANELS
    assert all(b"<svg " in svg for svg in drawn.values())
    named = {"realised", "predicted", "even draw\n(estimate)", "reward of\nchosen rows", "first\nquarter"}
    assert named <= legends[0] == set.union(*legends[1:])
    assert legends[0] & {*STRATA} == {*STRATA} - {"colour 2"}  # of which no row was chosen
    with Image.open(tmp_path / "p.png") as picture:
        colours = {"#{:02x}{:02x}{:02x}".format(*colour[:3]) for _, colour in picture.getcolors(2**20)}
    assert {LIGHT[part] for part in ("first", "second", "third")} <= colours


@pytest.mark.slow
def test_the_panels_of_a_long_run_are_not_large(tmp_path):
    history = [{"step": step, "reward": step % 7 / 7, "vade/mean_pass_rate": step % 5 / 5} for step in range(2000)]
    drawn = draw_report(run_with(tmp_path, batches=BATCHES * 125, history=history), tmp_path / "p.png")
    assert max(map(len, drawn.values())) < 200_000


@pytest.mark.slow
def test_panels_without_data_are_left_out_and_of_many_strata_the_most_frequent_have_a_band(tmp_path, legends):
    run = read_run(write_run(tmp_path / "bare", history=[]))
    assert list(draw_report(run, tmp_path / "p.png")) == ["Useful groups", "Chosen groups"]
    strata = [f"task{i} {level}" for i in range(8) for level in (1, 2, 3)]
    run = run_with(tmp_path / "many", strata, num_rows=24, batches=BATCHES * 2)
    assert len({row for line in run.lines for row in line["sample_index"]}) > 12
    draw_report(run, tmp_path / "p.png")
    assert len(legends[-1]) == 12


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("batches", "history"),
    [
        slow(BATCHES[:1], []),
        ([(UNSCORED, UNSCORED)] * 2, [*HISTORY, {"step": 17, "reward": NAN}]),
        slow(BATCHES[:2], [{"step": 0, "eval_rewards/accuracy/mean": 0.5}]),
        slow(BATCHES * 8, [{"step": 1, "reward": 1.0}]),
    ],
)
def test_short_long_and_unscored_runs_are_drawn_without_a_warning(tmp_path, batches, history):
    draw_report(run_with(tmp_path, batches=batches, history=history), tmp_path / "p.png")


def test_the_bins_of_pass_rates_have_no_spikes_from_the_group_size():
    """With all numbers of successes equally likely, all bins but the last are equal."""
    for num_generations in (2, 3, 4, 8, 16, 64):
        edges = _edges(num_generations)
        counts = np.histogram(np.arange(num_generations + 1) / num_generations, bins=edges)[0]
        assert counts.sum() == num_generations + 1
        assert {*counts[:-2].tolist()} <= {counts[0]}
        assert len(counts) <= 17


@given(st.lists(st.one_of(st.just(NAN), st.floats(-10, 10)), min_size=1, max_size=40), st.integers(1, 12))
def test_the_running_mean_is_that_of_a_plain_loop(values, window):
    parts = [[x for x in values[max(end - window, 0) : end] if x == x] for end in range(1, len(values) + 1)]
    expected = [sum(part) / len(part) if part else NAN for part in parts]
    np.testing.assert_allclose(running_mean(np.array(values), window), expected, atol=1e-12)
