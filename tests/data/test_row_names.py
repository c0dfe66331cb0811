"""Names of rows: the text of their ids, or what stands for their content; and rows found again by either."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.data import row_names as module
from trl_vade.data.row_keys import row_key, sample_keys
from trl_vade.data.row_names import (
    RowNames,
    key_text,
    keys_of_ids,
    names_and_tasks,
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


# ---------------------------------------------------------------- the names that all ids in memory give, without them


def all_names(dataset, keys):
    """The names by the plain way: all texts, and a set of them."""
    hexadecimal = [key_text(key) for key in keys.tolist()]
    if "id" not in dataset.column_names:
        return hexadecimal
    column = dataset.select_columns(["id"]).with_format("arrow")[:]["id"]
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return hexadecimal
    values = column.to_pylist()
    if len(set(values)) < len(values):
        return hexadecimal
    names = [digits if id is None else str(id) for id, digits in zip(values, hexadecimal, strict=True)]
    return names if len(set(names)) == len(names) else hexadecimal


def all_found(dataset, keys, wanted):
    """The rows of names by the plain way."""
    row_of = {name: row for row, name in enumerate(all_names(dataset, keys))}
    of_keys = {key_text(key): row for row, key in enumerate(keys.tolist())}
    return [row_of.get(name, of_keys.get(name, -1)) for name in wanted]


KEY_OF_NO_ID = key_text(row_key({}))
NUMBER_LIKE_A_KEY = 1234567890123456
TYPES_OF_IDS = {
    pa.string(): st.sampled_from(["a", "b", "1", "01", "-1", "", "None", "nan", KEY_OF_NO_ID, "ü"]),
    pa.large_string(): st.sampled_from(["a", "b", "1", KEY_OF_NO_ID]),
    pa.int64(): st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), NUMBER_LIKE_A_KEY]),
    pa.uint64(): st.sampled_from([0, 1, 2**64 - 1, 2**63, NUMBER_LIKE_A_KEY]),
    pa.int8(): st.integers(-3, 3),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), 1e16]),
    pa.float32(): st.sampled_from([0.0, -0.0, 0.5, float("nan")]),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "Europe/Berlin"): st.sampled_from([0, 1603585800000000, 1603589400000000]),  # an hour twice
    pa.timestamp("s"): st.integers(0, 3),
    pa.date32(): st.integers(0, 3),
    pa.decimal128(5, 2): st.sampled_from([Decimal("1.00"), Decimal("1.10"), Decimal("-0.00"), Decimal("0.00")]),
    pa.binary(): st.sampled_from([b"a", b"b"]),
    pa.list_(pa.int64()): st.lists(st.integers(0, 1), max_size=1),
    pa.null(): st.none(),
}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(data=st.data(), kind=st.sampled_from(list(TYPES_OF_IDS)), prompts=st.booleans(), of_content=st.booleans())
def test_ids_of_any_type_give_the_names_and_the_rows_that_all_of_them_in_memory_give(data, kind, prompts, of_content):
    ids = data.draw(st.lists(st.one_of(TYPES_OF_IDS[kind], st.none()), min_size=1, max_size=5))
    columns = {"id": pa.array(ids, kind)} | ({"prompt": pa.array(list("aabcd")[: len(ids)])} if prompts else {})
    dataset = Dataset(pa.table(columns))
    if data.draw(st.booleans()):
        dataset = dataset.select(data.draw(st.permutations(range(len(ids)))))
    known = dataset.remove_columns("id") if of_content and prompts else dataset  # as with remove_unused_columns
    keys = sample_keys(known)[0]
    expected = all_names(dataset, keys)
    assert RowNames(dataset, keys).of() == expected
    asked = data.draw(st.lists(st.sampled_from(range(len(ids))), max_size=6))
    assert RowNames(dataset, keys).of(asked) == [expected[row] for row in asked]
    some = ["a", "1", "-1", "01", "1.0", "0.0", "nan", "None", "True", str(2**64 - 1), str(2**64), KEY_OF_NO_ID]
    wanted = data.draw(st.permutations([*expected, *expected, *map(key_text, keys.tolist()), *some]))
    assert RowNames(dataset, keys).find(wanted).tolist() == all_found(dataset, keys, wanted)


def test_a_number_that_looks_like_the_key_of_the_row_without_one_gives_no_two_rows_one_name():
    keys = np.array([5, int(str(NUMBER_LIKE_A_KEY), 16)])  # of the content, as with remove_unused_columns
    dataset = rows([NUMBER_LIKE_A_KEY, None])
    assert RowNames(dataset, keys).of() == all_names(dataset, keys) == [key_text(key) for key in keys.tolist()]


def test_only_the_rows_that_are_asked_for_are_read(monkeypatch):
    dataset = rows([f"row-{i}" for i in range(5000)])
    keys, _ = sample_keys(dataset)
    read, batches, names = [], module._batches, RowNames(dataset, keys)
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 4)
    monkeypatch.setattr(
        module, "_batches", lambda *given: (read.append(len(batch)) or batch for batch in batches(*given))
    )
    assert names.of([4999, 3, 17, 3, 8, 0]) == ["row-4999", "row-3", "row-17", "row-3", "row-8", "row-0"]
    assert read == [4, 2]
    read.clear()
    assert names.find(["row-9", "row-4711", "row-5000"]).tolist() == [9, 4711, -1]
    assert read == []  # ids are looked up by their keys


def test_a_table_of_a_posterior_gets_the_names_and_tasks_of_its_rows_only():
    dataset = rows(list("abcd")).add_column("task", ["x", None, "y", "x"])
    visited = np.array([1, 3])
    names = RowNames(dataset, sample_keys(dataset)[0])
    columns = names_and_tasks(names, visited, "task")
    assert {name: [len(column), *[column[row] for row in visited.tolist()]] for name, column in columns.items()} == {
        "sample_id": [4, "b", "d"],
        "task": [4, None, "x"],
    }
    assert names_and_tasks(names, visited, "kind")["task"] is None
    assert len(names_and_tasks(names, np.array([1, 9]), "task")["task"]) == 4  # `posterior_table` says what is wrong


def test_twenty_thousand_rows_are_found():
    number = 20_000
    dataset = Dataset.from_dict({"id": [f"row-{i}" for i in range(number)]})
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, number, endpoint=True)
    order = np.random.default_rng(1).permutation(number)
    assert (RowNames(dataset, keys).find([f"row-{i}" for i in order]) == order).all()
    assert (RowNames(dataset, keys).find([key_text(int(keys[i])) for i in order]) == order).all()


@pytest.mark.parametrize(
    "ids",
    [
        ["geo-1", "7", "0007", "-0", "+7", "", "9" * 5000],
        [7, -3, 0, 2**53],
        [1234567890123456789, 2**63 - 1, -(2**63)],
        [str(2**63), "-1" + "0" * 18, "-9223372036854775809"],  # no int64s but one
        ["0123456789abcdef", "1234567890123456"],  # which look like keys
    ],
    ids=lambda ids: str(ids)[:40],
)
def test_the_text_of_an_id_leads_to_the_key_of_its_row_whether_it_is_a_text_or_a_number(ids):
    dataset = rows(ids)
    for key, found in zip(hexadecimal(dataset), keys_of_ids(named(dataset)), strict=True):
        assert key in found
    assert keys_of_ids([]) == []


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
