"""What a posterior comes to, and its rows from both ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from trl_vade.cli.showing import both_ends, summarise_posterior


def test_a_summary_worked_out_by_hand_and_one_of_no_rows():
    table = make_table({"hard": (0, 8), "even": (3, 3), "easy": (8, 0), "also even": (0, 0)}, num_samples=9)
    assert summarise_posterior(table) == {
        "rows": 4,
        "num_samples": 9,
        "mean_pass_rate": pytest.approx(0.5),
        "median_pass_rate": pytest.approx(0.5),
        "mean_visits": 2.5,
        "most_visits": 4,
        "histogram": [0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
    }
    first, last = both_ends(table, 4, "")
    assert [record["sample_id"] for record in first + last] == ["hard", "also even", "even", "easy"]
    summary = summarise_posterior(make_table({}))
    assert (summary["rows"], summary["mean_pass_rate"], sum(summary["histogram"])) == (0, None, 0)


@given(st.integers(0, 12), st.integers(0, 15))
def test_both_ends_are_as_many_rows_as_asked_for_and_none_twice(rows, count):
    first, last = both_ends(make_table({f"{row:02}": (row, 0) for row in range(rows)}), count, "")
    shown = [record["index"] for record in first + last]
    assert len(shown) == len(set(shown)) == min(rows, count)
    assert sorted(shown) == shown
    assert 0 <= len(first) - len(last) <= 1
    assert not first or shown[0] == 0
    assert not last or shown[-1] == rows - 1
