"""The histogram of the pass rates: numbers, bars of signs, and a picture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from trl_vade.hub.posteriors.facts import (
    MOST_TASKS,
    bin_counts,
    count_rows,
    counts_by_task,
    draw_pass_rates,
    text_histogram,
)
from trl_vade.hub.posteriors.table import PosteriorTable
from trl_vade.pictures.palette import LIGHT


def make_table(pass_rate, task=None):
    size = len(pass_rate)
    return PosteriorTable(
        sample_id=[f"row-{number}" for number in range(size)],
        index=np.arange(size),
        task=task,
        alpha=np.zeros(size),
        beta=np.zeros(size),
        visits=np.ones(size, dtype=np.int64),
        pass_rate=np.array(pass_rate, dtype=np.float64),
        last_step=np.ones(size, dtype=np.int64),
        metadata={"global_step": 100},
    )


def test_a_rate_on_an_edge_belongs_to_the_bin_that_begins_with_it():
    edges = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert bin_counts([0.05, 1.0]).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    for number, (edge, (name, _)) in enumerate(zip(edges, count_rows(make_table([])), strict=True)):
        assert name.startswith(str(edge))
        assert bin_counts([edge]).tolist() == [place == number for place in range(10)]


@given(st.lists(st.floats(0, 1), max_size=60))
def test_every_row_is_in_the_text_and_no_line_is_longer_than_the_terminal(rates):
    lines = text_histogram(make_table(rates)).split("\n")
    assert len(lines) == 10
    assert max(map(len, lines)) <= 80
    assert sum(int(line[10:].replace("#", "")) for line in lines) == len(rates)
    for line, count in zip(lines, bin_counts(rates), strict=True):
        assert ("#" in line) == (count > 0)


def test_the_text_has_a_bar_for_each_bin_to_one_scale():
    rates = [0.05] * 1200 + [0.15] * 600 + [0.95]
    assert text_histogram(make_table(rates)).split("\n") == [
        f"0.0 to 0.1  1,200  {'#' * 61}",
        f"0.1 to 0.2    600  {'#' * 31}",
        *(f"0.{bin} to 0.{bin + 1}      0" for bin in range(2, 9)),
        "0.9 to 1.0      1  #",
    ]


def test_the_tasks_add_up_to_all_rows_and_the_commonest_comes_first():
    rates, tasks = np.linspace(0, 1, 30), ["chart"] * 5 + [None] * 10 + ["math"] * 15
    by_task = counts_by_task(make_table(rates, tasks))
    assert list(by_task) == ["math", "no task", "chart"]
    np.testing.assert_array_equal(sum(by_task.values()), bin_counts(rates))


def test_of_many_tasks_the_rarest_are_one_entry():
    tasks = [f"task {number}" for number in range(11) for _ in range(number + 1)]
    by_task = counts_by_task(make_table(np.linspace(0, 1, len(tasks)), tasks))
    assert len(by_task) == MOST_TASKS
    assert next(iter(by_task)) == "task 10"
    assert list(by_task)[-1] == "4 other tasks"
    assert by_task["4 other tasks"].sum() == 1 + 2 + 3 + 4
    eight = [f"task {number % 8}" for number in range(40)]
    assert "1 other tasks" not in counts_by_task(make_table(np.linspace(0, 1, 40), eight))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "table",
    [
        make_table(np.linspace(0, 1, 50)),
        make_table(np.linspace(0, 1, 50), ["_hidden", "cost $5 or $6", "$", "x" * 200, None] * 10),
        make_table([]),
        make_table([], []),
    ],
)
def test_a_picture_is_drawn_of_any_table(table, tmp_path):
    draw_pass_rates(table, tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.width > 400
        colours = picture.convert("RGB").getcolors(100_000)
    assert (tuple(bytes.fromhex(LIGHT["first"][1:])) in {colour for _, colour in colours}) == (len(table) > 0)
