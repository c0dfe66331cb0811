"""What a posterior comes to, and what differs between two: worked out by hand, and against a plain loop."""

import json

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from trl_vade.cli.posterior.showing import both_ends, compare, summarise_posterior
from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_names import key_text
from trl_vade.hub.posteriors.table import arrow_of

# Pass rates 0.1, 0.5, 0.9, and 0.5 again
FOUR = {"hard": (0, 8), "even": (3, 3), "easy": (8, 0), "also even": (0, 0)}


def test_a_summary_worked_out_by_hand():
    assert summarise_posterior(make_table(FOUR, num_samples=9)) == {
        "rows": 4,
        "num_samples": 9,
        "mean_pass_rate": pytest.approx(0.5),
        "median_pass_rate": pytest.approx(0.5),
        "mean_visits": 2.5,
        "most_visits": 4,
        "histogram": [0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
    }


def test_a_posterior_without_rows_has_a_summary_too():
    summary = summarise_posterior(make_table({}))
    assert (summary["rows"], summary["mean_pass_rate"], sum(summary["histogram"])) == (0, None, 0)
    assert both_ends(make_table({}), "pass_rate", 20, "") == ([], [])


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("pass_rate", ["hard", "also even", "even", "easy"]),
        ("visits", ["hard", "even", "easy", "also even"]),
        ("beta", ["also even", "easy", "even", "hard"]),
        ("sample_id", ["also even", "easy", "even", "hard"]),
    ],
)
def test_rows_are_sorted_by_a_column_and_ties_by_name(column, names):
    first, last = both_ends(make_table(FOUR), column, 4, "")
    assert [record["sample_id"] for record in first + last] == names


@given(st.integers(0, 12), st.integers(0, 15))
def test_both_ends_are_as_many_rows_as_asked_for_and_none_twice(rows, count):
    first, last = both_ends(make_table({f"{row:02}": (row, 0) for row in range(rows)}), "pass_rate", count, "")
    shown = [record["index"] for record in first + last]
    assert len(shown) == len(set(shown)) == min(rows, count)
    assert sorted(shown) == shown
    assert 0 <= len(first) - len(last) <= 1
    assert not first or shown[0] == 0
    assert not last or shown[-1] == rows - 1


def test_a_row_as_json_leaves_out_the_task_where_none_is_known():
    [record] = arrow_of(make_table({"a": (1, 0)}, task=["geometry"])).to_pylist()
    assert record.pop("task") == "geometry"
    assert arrow_of(make_table({"a": (1, 0)})).to_pylist() == [record]
    assert record["alpha"] == 1.0
    json.dumps(record, allow_nan=False)


LEAST = 0.01  # a threshold that every change in these tests reaches


def names(rows):
    return [row["sample_id"] for row in rows]


def changed(found):
    return found["became_hard"] + found["became_easy"][::-1]


def test_a_difference_worked_out_by_hand():
    before = make_table({"gone": (0, 0), "up": (0, 2), "down": (2, 0), "same": (0, 0), "a bit": (1, 1)})
    after = make_table({"same": (5, 5), "a bit": (2, 1), "down": (0, 2), "new": (9, 9), "up": (2, 0)})
    found = compare(before, after)
    assert (found["only_in_a"], found["only_in_b"], found["in_both"]) == (1, 1, 4)
    assert names(found["became_easy"]) == ["up"]  # 0.25 to 0.75
    assert names(found["became_hard"]) == ["down"]
    assert found["mean_change"] == pytest.approx((0.5 - 0.5 + 0 + 0.1) / 4)
    assert found["correlation"] == pytest.approx(np.corrcoef([0.25, 0.75, 0.5, 0.5], [0.75, 0.25, 0.5, 0.6])[0, 1])
    json.dumps(found, allow_nan=False)


def test_the_largest_changes_come_first():
    rows = [f"row {number}" for number in range(6)]
    before = make_table(dict.fromkeys(rows, (0, 0)))
    after = make_table(dict(zip(rows, [(2, 0), (98, 0), (8, 0), (0, 8), (0, 98), (0, 2)], strict=True)))
    found = compare(before, after)
    assert names(found["became_easy"]) == ["row 1", "row 2", "row 0"]
    assert names(found["became_hard"]) == ["row 4", "row 3", "row 5"]


def test_a_change_of_the_threshold_itself_counts_whatever_floats_say():
    before, after = make_table({"a": (0, 8)}), make_table({"a": (2, 6)})  # 0.1 to 0.3
    assert after.pass_rate[0] - before.pass_rate[0] < 0.2  # 0.19999...
    assert compare(before, after, threshold=0.2)["became_easy"]
    assert compare(after, before, threshold=0.2)["became_hard"]


def test_without_a_row_in_common_or_with_equal_rates_there_is_no_correlation():
    found = compare(make_table({"a": (1, 0)}), make_table({"b": (1, 0)}))
    assert (found["only_in_a"], found["only_in_b"]) == (1, 1)
    assert found["correlation"] is found["mean_change"] is None
    constant = make_table({"a": (0, 0), "b": (0, 0)})
    assert compare(constant, make_table({"a": (1, 0), "b": (0, 1)}))["correlation"] is None


@pytest.mark.parametrize(
    "ids",
    [
        ["geo-1", "geo-2", "7", "8"],
        [5, 6, 7, 8],
        [1234567890123456789 + row for row in range(4)],
        [f"{row:016x}" for row in range(4)],
        [1234567890123456 + row for row in range(4)],
    ],
    ids=["texts", "numbers", "long numbers", "texts like keys", "numbers like keys"],
)
def test_a_checkpoint_that_names_rows_by_hashes_is_compared_with_a_table_that_names_them_by_ids(ids):
    keys = [key_text(key) for key in sample_keys(Dataset.from_dict({"id": ids}))[0].tolist()]
    counts = [(0, 2), (2, 0), (1, 0), (3, 1)]
    checkpoint = make_table(dict(zip(keys[:3], counts, strict=False)))
    published = make_table(dict(zip(map(str, ids[1:]), counts[::-1], strict=False)), task=["x", "y", "z"])
    for found in (compare(checkpoint, published, LEAST), compare(published, checkpoint, LEAST)):
        assert (found["only_in_a"], found["only_in_b"], found["in_both"]) == (1, 1, 2)
        assert {row["sample_id"]: row["task"] for row in changed(found)} == {str(ids[1]): "x"}
    [row] = compare(checkpoint, published, LEAST)["became_hard"]
    assert (row["before"], row["after"]) == (0.75, pytest.approx(4 / 6))


def test_ids_that_look_like_keys_are_found_beside_the_one_row_without_an_id():
    ids = ["0123456789abcdef", None, "fedcba9876543210"]
    keys = [key_text(key) for key in sample_keys(Dataset.from_dict({"id": ids}))[0].tolist()]
    called = [keys[1] if name is None else name for name in ids]
    checkpoint, published = (
        make_table(dict.fromkeys(each, count)) for each, count in ((keys, (1, 1)), (called, (2, 1)))
    )
    for found in (compare(checkpoint, published, LEAST), compare(published, checkpoint, LEAST)):
        assert (sorted(names(changed(found))), found["in_both"]) == (sorted(called), 3)


def test_facts_that_differ_are_named_and_where_a_table_lies_is_no_fact():
    a = make_table(FOUR, base_model="m", success_threshold=0.5, source="here", recipe={"beta": 0})
    b = make_table(FOUR, base_model="m", success_threshold=1.0, source="there", recipe={"beta": 1})
    assert compare(a, b)["differing_facts"] == {"success_threshold": [0.5, 1.0]}


def test_what_one_side_alone_says_is_no_difference():
    a = make_table(FOUR, success_threshold=0.5, seed=0, revision="abc", dataset=None)
    b = make_table(FOUR, success_threshold=0.5, dataset="you/q", sampler="greedy")
    found = compare(a, b)
    assert (found["facts_only_in_a"], found["facts_only_in_b"]) == (["seed"], ["dataset", "sampler"])
    assert found["differing_facts"] == {}


def test_the_task_is_taken_from_whichever_side_knows_it():
    known = make_table({"a": (1, 0), "b": (0, 0)}, task=["algebra", None])
    unknown = make_table({"a": (0, 0), "b": (0, 1)})
    for left, right in ((known, unknown), (unknown, known)):
        found = compare(left, right, LEAST)
        assert {row["sample_id"]: row["task"] for row in changed(found)} == {"a": "algebra", "b": None}


counts = st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12)


@given(counts, counts, st.floats(0.01, 1))
def test_a_difference_is_that_of_a_plain_loop_and_turns_round(left, right, threshold):
    a, b = make_table(left), make_table(right)
    found, back = compare(a, b, threshold), compare(b, a, threshold)
    rate_a, rate_b = (dict(zip(one.sample_id, one.pass_rate, strict=True)) for one in (a, b))
    change = {name: rate_b[name] - rate_a[name] for name in rate_a.keys() & rate_b.keys()}
    easy = set(names(found["became_easy"]))
    assert found["in_both"] == len(change)
    assert (found["only_in_a"], found["only_in_b"]) == (len(a) - len(change), len(b) - len(change))
    assert easy == {name for name, value in change.items() if value >= threshold - 1e-9}
    assert set(names(back["became_hard"])) == easy
    assert set(names(back["became_easy"])) == set(names(found["became_hard"]))
    assert (back["only_in_a"], back["only_in_b"]) == (found["only_in_b"], found["only_in_a"])
    assert found["correlation"] == (None if back["correlation"] is None else pytest.approx(back["correlation"]))
