"""Names and tasks of rows: the text of their ids, or their keys, and texts of labels of any kind."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset

from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_views import key_text, names_and_tasks, row_labels


def named(dataset):
    return names_and_tasks(dataset, sample_keys(dataset)[0], np.arange(len(dataset)), "task")["sample_id"]


def rows(ids):
    return Dataset(pa.table({"id": ids, "prompt": [f"question {i}" for i in range(len(ids))]}))


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["geo-1", "", None, "a b"]),
        pa.array([0, 2**64 - 1, 2**63], pa.uint64()),
        pa.array([True, False]),
        pa.array([0.0, float("nan"), 1e16, -0.0]),
        pa.array([0, 3600, 7200], pa.timestamp("s", "Europe/Berlin")),
        pa.array([Decimal("1.00"), Decimal("1.10")]),
        pa.nulls(1),
    ],
    ids=str,
)
def test_an_id_is_the_name_and_a_row_without_one_has_its_key(ids):
    dataset = rows(ids).select(range(len(ids))[::-1])
    keys = [key_text(key) for key in sample_keys(dataset)[0].tolist()]
    texts = [key if one is None else str(one) for one, key in zip(dataset["id"], keys, strict=True)]
    assert named(dataset) == named(dataset.with_format("numpy")) == texts


@pytest.mark.parametrize("ids", [[[1], [2], [3]], [b"a", b"b", b"c"]], ids=str)
def test_ids_without_a_text_and_rows_without_ids_give_the_keys(ids):
    for dataset in (rows(pa.array(ids)), rows(pa.array(ids)).remove_columns("id")):
        assert named(dataset) == [key_text(key) for key in sample_keys(dataset)[0].tolist()]


def test_a_table_of_a_posterior_gets_the_names_and_tasks_of_its_rows_only():
    dataset = rows(pa.array(list("abcd"))).add_column("task", ["x", None, "y", "x"])
    keys, visited = sample_keys(dataset)[0], np.array([1, 3])
    assert names_and_tasks(dataset, keys, visited, "task") == {"sample_id": ["b", "d"], "task": [None, "x"]}
    assert names_and_tasks(dataset, keys, visited, "kind")["task"] is None
    assert names_and_tasks(dataset, keys, visited[:0], "task") == {"sample_id": [], "task": []}


def test_a_label_is_a_text_whatever_its_column_is():
    dataset = Dataset.from_dict(
        {"number": [1, None, 3], "text": ["a", "", None], "list": [["x"], [], None], "class": [1, 0, None]}
    )
    dataset, every = dataset.cast_column("class", ClassLabel(names=["even", "odd"])), np.arange(3)
    assert row_labels(dataset, "number", every) == ["1", None, "3"]
    assert row_labels(dataset, "text", every) == ["a", "", None]
    assert row_labels(dataset, "list", every) == ["['x']", "[]", None]
    assert row_labels(dataset.with_format("numpy"), "class", every) == ["odd", "even", None]
    hidden = Dataset.from_dict({"class": [-1, 1]}).cast_column("class", ClassLabel(names=["even", "odd"]))
    assert row_labels(hidden, "class", every[:2]) == [None, "odd"]
    assert row_labels(dataset.select([2, 1, 0]), "class", np.array([2, 0, 2])) == ["odd", None, "odd"]
