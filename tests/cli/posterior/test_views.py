"""What a posterior comes to, and what differs between two: worked out by hand, and against plain loops."""

import json

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from tests.support.posteriors import make_table
from tests.support.refusals import refused
from trl_vade.cli.posterior.views import both_ends, compare, order_by, row_records, summarise_posterior
from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_names import key_text
from trl_vade.errors import ConfigurationError

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
    assert order_by(make_table({}), "pass_rate").tolist() == []


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
    table = make_table(FOUR)
    assert [table.sample_id[row] for row in order_by(table, column)] == names


@given(st.integers(0, 12), st.integers(0, 15))
def test_both_ends_are_as_many_rows_as_asked_for_and_none_twice(rows, count):
    first, last = both_ends(np.arange(rows), count)
    shown = [*first, *last]
    assert len(shown) == min(rows, count)
    assert len(set(shown)) == len(shown)
    assert sorted(shown) == shown
    assert 0 <= len(first) - len(last) <= 1
    assert not len(first) or first[0] == 0
    assert not len(last) or last[-1] == rows - 1


def test_a_row_as_json_leaves_out_what_is_not_known():
    table = make_table({"a": (1, 0)}, index=[-1])
    table.last_step[:] = 0
    [record] = row_records(table, [0])
    assert record == {
        "sample_id": "a",
        "index": None,
        "alpha": 1.0,
        "beta": 0.0,
        "visits": 1,
        "pass_rate": pytest.approx(2 / 3),
        "last_step": None,
    }
    json.dumps(record, allow_nan=False)
    assert row_records(make_table({"a": (1, 0)}, task=["geometry"]), [0])[0]["task"] == "geometry"


# ------------------------------------------------------------------------------------------------------------ compare


def test_a_difference_worked_out_by_hand():
    before = make_table({"gone": (0, 0), "up": (0, 2), "down": (2, 0), "same": (0, 0), "a bit": (1, 1)})
    after = make_table({"same": (5, 5), "a bit": (2, 1), "down": (0, 2), "new": (9, 9), "up": (2, 0)})
    found = compare(before, after)
    assert (found.only_a, found.only_b, len(found.sample_id)) == (1, 1, 4)
    assert [found.sample_id[row] for row in found.became_easy] == ["up"]  # 0.25 to 0.75
    assert [found.sample_id[row] for row in found.became_hard] == ["down"]
    assert found.as_json()["mean_change"] == pytest.approx((0.5 - 0.5 + 0 + 0.1) / 4)
    assert found.correlation == pytest.approx(np.corrcoef([0.25, 0.75, 0.5, 0.5], [0.75, 0.25, 0.5, 0.6])[0, 1])
    json.dumps(found.as_json(), allow_nan=False)


def test_the_largest_changes_come_first():
    names = [f"row {number}" for number in range(6)]
    before = make_table(dict.fromkeys(names, (0, 0)))
    after = make_table(dict(zip(names, [(2, 0), (98, 0), (8, 0), (0, 8), (0, 98), (0, 2)], strict=True)))
    found = compare(before, after)
    assert [found.sample_id[row] for row in found.became_easy] == ["row 1", "row 2", "row 0"]
    assert [found.sample_id[row] for row in found.became_hard] == ["row 4", "row 3", "row 5"]


def test_a_change_of_the_threshold_itself_counts_whatever_floats_say():
    before, after = make_table({"a": (0, 8)}), make_table({"a": (2, 6)})  # 0.1 to 0.3
    assert after.pass_rate[0] - before.pass_rate[0] < 0.2  # 0.19999...
    assert compare(before, after, threshold=0.2).became_easy.tolist() == [0]
    assert compare(after, before, threshold=0.2).became_hard.tolist() == [0]


def test_posteriors_without_a_row_in_common_have_no_correlation():
    found = compare(make_table({"a": (1, 0)}), make_table({"b": (1, 0)}))
    assert (found.only_a, found.only_b, found.correlation, found.as_json()["mean_change"]) == (1, 1, None, None)


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
    counts = [(0, 2), (2, 0), (1, 1), (3, 1)]
    checkpoint = make_table(dict(zip(keys[:3], counts, strict=False)))
    published = make_table(dict(zip(map(str, ids[1:]), counts[::-1], strict=False)), task=["x", "y", "z"])
    found, back = compare(checkpoint, published), compare(published, checkpoint)
    assert (found.only_a, found.only_b) == (back.only_a, back.only_b) == (1, 1)
    assert dict(zip(found.sample_id, found.task, strict=True)) == {str(ids[1]): "x", str(ids[2]): "y"}
    assert sorted(back.sample_id) == sorted(found.sample_id)
    assert dict(zip(found.sample_id, found.before, strict=True)) == {str(ids[1]): 0.75, str(ids[2]): 0.5}
    assert sorted(found.change) == sorted(-back.change)


def test_ids_that_look_like_keys_are_found_beside_the_one_row_without_an_id():
    ids = ["0123456789abcdef", None, "fedcba9876543210"]
    keys = [key_text(key) for key in sample_keys(Dataset.from_dict({"id": ids}))[0].tolist()]
    names = [keys[1] if name is None else name for name in ids]
    checkpoint, published = (make_table(dict.fromkeys(each, (1, 1))) for each in (keys, names))
    for found in (compare(checkpoint, published), compare(published, checkpoint)):
        assert (sorted(found.sample_id), found.only_a, found.only_b) == (sorted(names), 0, 0)


def test_a_constant_side_has_no_correlation():
    names = {"a": (0, 0), "b": (0, 0)}
    assert compare(make_table(names), make_table({"a": (1, 0), "b": (0, 1)})).correlation is None


@pytest.mark.parametrize("threshold", [0, -0.1, 1.5, float("nan"), True])
def test_a_threshold_that_is_none_is_refused(threshold):
    with refused(ConfigurationError, ["threshold", threshold], ["(0, 1]"]):
        compare(make_table(FOUR), make_table(FOUR), threshold)


def test_facts_that_differ_are_named_and_where_a_table_lies_is_no_fact():
    a = make_table(FOUR, base_model="m", success_threshold=0.5, source="here", recipe={"beta": 0})
    b = make_table(FOUR, base_model="m", success_threshold=1.0, source="there", recipe={"beta": 1})
    assert compare(a, b).facts == {"success_threshold": (0.5, 1.0)}


def test_what_one_side_alone_says_is_no_difference():
    a = make_table(FOUR, success_threshold=0.5, seed=0, revision="abc", dataset=None)
    b = make_table(FOUR, success_threshold=0.5, dataset="you/q", sampler="greedy")
    found = compare(a, b)
    assert (found.facts, found.facts_only_a, found.facts_only_b) == ({}, ["seed"], ["dataset", "sampler"])


def test_the_task_is_taken_from_whichever_side_knows_it():
    known = make_table({"a": (1, 0), "b": (0, 0)}, task=["algebra", None])
    unknown = make_table({"a": (0, 0), "b": (0, 0)})
    for left, right in ((known, unknown), (unknown, known)):
        found = compare(left, right)
        assert dict(zip(found.sample_id, found.task, strict=True)) == {"a": "algebra", "b": None}


counts = st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12)


@given(counts, counts, st.floats(0.01, 1))
def test_a_difference_is_that_of_a_plain_loop_and_turns_round(left, right, threshold):
    a, b = make_table(left), make_table(right)
    found, back = compare(a, b, threshold), compare(b, a, threshold)
    rate_a, rate_b = (dict(zip(one.sample_id, one.pass_rate, strict=True)) for one in (a, b))
    change = {name: rate_b[name] - rate_a[name] for name in rate_a.keys() & rate_b.keys()}
    easy = {found.sample_id[row] for row in found.became_easy}
    hard = {found.sample_id[row] for row in found.became_hard}
    assert set(found.sample_id) == change.keys()
    assert (found.only_a, found.only_b) == (len(a) - len(change), len(b) - len(change))
    assert easy == {name for name, value in change.items() if value >= threshold - 1e-9}
    assert {back.sample_id[row] for row in back.became_hard} == easy
    assert {back.sample_id[row] for row in back.became_easy} == hard
    assert (back.only_a, back.only_b) == (found.only_b, found.only_a)
    assert found.correlation == (None if back.correlation is None else pytest.approx(back.correlation))
