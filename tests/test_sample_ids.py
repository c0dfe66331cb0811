"""Names of rows: the text of their ids, or what stands for their content; and rows found again by either."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from trl_vade.data import sample_keys
from trl_vade.sample_ids import find_samples, key_text, keys_of_ids, row_labels, sample_ids


def named(dataset):
    return sample_ids(dataset, sample_keys(dataset)[0])


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
    assert find_samples(dataset, keys, wanted).tolist() == [2, 0, -1, -1, -1, 3, -1]
    assert find_samples(dataset, keys, []).tolist() == []


@settings(deadline=None, derandomize=True, max_examples=30)
@given(data=st.data(), number=st.integers(1, 30))
def test_every_row_is_found_wherever_it_has_gone_and_no_other_is(data, number):
    order = data.draw(st.permutations(range(number)))
    kept = data.draw(st.integers(0, number))
    before = Dataset.from_dict({"prompt": [f"question {i}" for i in range(number)]})
    after = before.select(order[:kept]) if kept else before.select([])
    found = find_samples(after, sample_keys(after)[0], named(before))
    assert {row: place for row, place in enumerate(found.tolist()) if place >= 0} == {
        row: place for place, row in enumerate(order[:kept])
    }


def test_a_hundred_thousand_rows_are_found():
    number = 100_000
    dataset = Dataset.from_dict({"id": [f"row-{i}" for i in range(number)]})
    keys = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, number, endpoint=True)
    order = np.random.default_rng(1).permutation(number)
    assert (find_samples(dataset, keys, [f"row-{i}" for i in order]) == order).all()
    assert (find_samples(dataset, keys, [key_text(int(keys[i])) for i in order]) == order).all()


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
