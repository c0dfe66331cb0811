"""Names of rows: the text of their ids, or what stands for their content; and rows found again by either."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_names import (
    RowNames,
    key_text,
    row_labels,
)


def named(dataset):
    return RowNames(dataset, sample_keys(dataset)[0]).of()


def rows(ids, prompts=None):
    return Dataset.from_dict({"prompt": prompts or [f"question {i}" for i in range(len(ids))], "id": ids})


def hexadecimal(dataset):
    return [key_text(key) for key in sample_keys(dataset)[0].tolist()]


@pytest.mark.parametrize("ids", [["geo-1", "geo-2", "a b"], [3, 1, 2], ["", "x", "y"], [1.5, 2.0, 0.5]], ids=str)
def test_ids_that_tell_all_rows_apart_are_the_names(ids):
    assert named(rows(ids)) == [str(value) for value in ids]


@pytest.mark.parametrize("ids", [["a", "b", "a"], ["a", None, None], [[1], [2], [3]], [b"a", b"b", b"c"]], ids=str)
def test_ids_that_tell_rows_not_apart_or_have_no_text_give_the_keys(ids):
    dataset = rows(ids)
    assert named(dataset) == hexadecimal(dataset)
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in named(dataset))


def test_without_ids_the_names_are_those_of_the_content_and_copies_have_their_own():
    dataset = Dataset.from_dict({"prompt": ["one", "two", "one"]})
    assert named(dataset) == hexadecimal(dataset)
    assert len(set(named(dataset))) == 3
    assert named(dataset.select([1, 0])) == [named(dataset)[1], named(dataset)[0]]


def test_the_one_row_without_an_id_has_its_key_for_a_name():
    dataset = rows(["a", None, "b"])
    assert named(dataset) == ["a", hexadecimal(dataset)[1], "b"]


def test_an_id_that_looks_like_another_rows_key_gives_no_two_rows_one_name():
    dataset = rows(["a", None])
    tricky = rows([hexadecimal(dataset)[1], None])  # the key of a row without an id is the same in both
    assert named(tricky) == hexadecimal(tricky)


def test_rows_in_another_format_or_order_have_the_same_names():
    dataset = rows([f"row-{i}" for i in range(5)])
    assert named(dataset.with_format("numpy")) == named(dataset)
    assert named(dataset.select([4, 0])) == ["row-4", "row-0"]


def test_a_row_is_found_by_its_id_and_by_its_key():
    dataset = rows(["a", "b", "c", "d"])
    keys = sample_keys(dataset)[0]
    wanted = ["c", hexadecimal(dataset)[0], "e", "0" * 16, "0123456789ABCDEF", "d", ""]
    assert RowNames(dataset, keys).find(wanted).tolist() == [2, 0, -1, -1, -1, 3, -1]
    assert RowNames(dataset, keys).find([]).tolist() == []


@settings(deadline=None, derandomize=True, max_examples=30)
@given(data=st.data(), number=st.integers(1, 30))
def test_every_row_is_found_wherever_it_has_gone_and_no_other_is(data, number):
    order = data.draw(st.permutations(range(number)))
    kept = data.draw(st.integers(0, number))
    before = Dataset.from_dict({"prompt": [f"question {i}" for i in range(number)]})
    after = before.select(order[:kept]) if kept else before.select([])
    found = RowNames(after, sample_keys(after)[0]).find(named(before))
    assert {row: place for row, place in enumerate(found.tolist()) if place >= 0} == {
        row: place for place, row in enumerate(order[:kept])
    }


@pytest.mark.parametrize(
    ("ids", "are_names"),
    [
        (pa.array([0, 2**64 - 1, 2**63], pa.uint64()), True),
        (pa.array([True, False]), True),
        (pa.array([0.0, float("nan"), 1e16, -0.0]), True),
        (pa.array([0, 3600, 7200], pa.timestamp("s", "Europe/Berlin")), True),
        (pa.array([Decimal("1.00"), Decimal("1.10")]), True),
        (pa.array([float("nan"), float("nan")]), False),
        (pa.nulls(1), True),
        (pa.nulls(2), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("of_content", [False, True])  # as with remove_unused_columns
def test_ids_of_any_type_are_names_if_their_texts_differ_and_every_name_leads_to_its_row(ids, are_names, of_content):
    dataset = Dataset(pa.table({"id": ids, "prompt": [f"question {i}" for i in range(len(ids))]}))
    dataset = dataset.select(range(len(ids))[::-1])
    keys = sample_keys(dataset.remove_columns("id") if of_content else dataset)[0]
    hexadecimal = [key_text(key) for key in keys.tolist()]
    texts = [digits if id is None else str(id) for id, digits in zip(dataset["id"], hexadecimal, strict=True)]
    names = RowNames(dataset, keys)
    assert names.of() == (texts if are_names else hexadecimal)
    assert names.of([0, len(ids) - 1, 0]) == [names.of()[row] for row in (0, -1, 0)]
    assert names.find([*names.of(), *hexadecimal]).tolist() == [*range(len(ids))] * 2


def test_a_number_that_looks_like_the_key_of_the_row_without_one_gives_no_two_rows_one_name():
    keys = np.array([5, int("1234567890123456", 16)])  # of the content, as with remove_unused_columns
    assert RowNames(rows([1234567890123456, None]), keys).of() == [key_text(key) for key in keys.tolist()]


def test_a_table_of_a_posterior_gets_the_names_and_tasks_of_its_rows_only():
    dataset = rows(list("abcd")).add_column("task", ["x", None, "y", "x"])
    visited = np.array([1, 3])
    names = RowNames(dataset, sample_keys(dataset)[0])
    assert names.columns(visited, "task") == {"sample_id": ["b", "d"], "task": [None, "x"]}
    assert names.columns(visited, "kind")["task"] is None


def test_twenty_thousand_rows_are_found():
    number = 20_000
    dataset = Dataset.from_dict({"id": [f"row-{i}" for i in range(number)]})
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, number, endpoint=True)
    order = np.random.default_rng(1).permutation(number)
    assert (RowNames(dataset, keys).find([f"row-{i}" for i in order]) == order).all()
    assert (RowNames(dataset, keys).find([key_text(int(keys[i])) for i in order]) == order).all()


def test_a_label_is_a_text_whatever_its_column_is():
    dataset = Dataset.from_dict(
        {"number": [1, None, 3], "text": ["a", "", None], "list": [["x"], [], None], "class": [1, 0, None]}
    )
    dataset = dataset.cast_column("class", ClassLabel(names=["even", "odd"]))
    assert row_labels(dataset, "number") == ["1", None, "3"]
    assert row_labels(dataset, "text") == ["a", "", None]
    assert row_labels(dataset, "list") == ["['x']", "[]", None]
    assert row_labels(dataset.with_format("numpy"), "class") == ["odd", "even", None]
    hidden = Dataset.from_dict({"class": [-1, 1]}).cast_column("class", ClassLabel(names=["even", "odd"]))
    assert row_labels(hidden, "class") == [None, "odd"]
    assert row_labels(dataset.select([2, 1, 0]), "class", [2, 0, 2]) == ["odd", None, "odd"]
    assert row_labels(dataset, "list", []) == []
