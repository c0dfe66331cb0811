"""The histogram of the pass rates: numbers, and bars of signs."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from trl_vade.hub.posteriors.table import bin_counts, text_histogram


def rates_table(pass_rate):
    table = make_table({f"row-{number}": (0, 0) for number in range(len(pass_rate))})
    return replace(table, pass_rate=np.array(pass_rate, dtype=np.float64))


def test_a_rate_on_an_edge_belongs_to_the_bin_that_begins_with_it():
    edges = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert bin_counts([0.05, 1.0]).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    for number, (edge, line) in enumerate(zip(edges, text_histogram(rates_table([])).split("\n"), strict=True)):
        assert line.startswith(str(edge))
        assert bin_counts([edge]).tolist() == [place == number for place in range(10)]


@given(st.lists(st.floats(0, 1), max_size=60))
def test_every_row_is_in_the_text_and_no_line_is_longer_than_the_terminal(rates):
    lines = text_histogram(rates_table(rates)).split("\n")
    assert len(lines) == 10
    assert max(map(len, lines)) <= 80
    assert sum(int(line[10:].replace("#", "")) for line in lines) == len(rates)
    for line, count in zip(lines, bin_counts(rates), strict=True):
        assert ("#" in line) == (count > 0)


def test_the_text_has_a_bar_for_each_bin_to_one_scale():
    rates = [0.05] * 1200 + [0.15] * 600 + [0.95]
    assert text_histogram(rates_table(rates)).split("\n") == [
        f"0.0 to 0.1  1,200  {'#' * 50}",
        f"0.1 to 0.2    600  {'#' * 25}",
        *(f"0.{bin} to 0.{bin + 1}      0" for bin in range(2, 9)),
        "0.9 to 1.0      1  #",
    ]
