"""Rows as a person reads them: names and labels, texts of every shape of a prompt, pictures of every mode."""

import base64
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, Image, List
from PIL import Image as Pillow

from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_views import (
    MOST_SIGNS,
    SIDE,
    describe_row,
    key_text,
    names_and_tasks,
    plain_text,
    prompt_texts,
    row_labels,
)

ASKED = {"role": "user", "content": "How many?"}


def test_the_text_of_a_prompt_is_the_question_at_its_end_or_all_that_was_said():
    with_image = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}]
    for messages, text in (
        ("a plain text", "a plain text"),
        *((None, ""), ([], "")),
        ([{"role": "system", "content": "Be short."}, ASKED], "How many?"),
        (with_image, "How many?"),
        ([{"role": "assistant", "content": None}, {"role": "tool", "content": "7"}], "7"),
        ([{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}], "first\nsecond"),
    ):
        assert plain_text(messages) == text


def opened(url):
    return Pillow.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2])))


def test_a_row_has_its_texts_and_a_small_picture():
    for mode in ("RGB", "RGBA", "LA", "P", "1", "CMYK"):
        large = Pillow.new("RGB", (2000, 500), "red").convert(mode)
        for column, value, kind in (("image", large, Image()), ("images", [large, large], List(Image()))):
            rows = Dataset.from_dict({"id": [3], "prompt": [[ASKED]], "solution": [0], "extra": ["not shown"]})
            rows = rows.map(lambda row, made={column: value}: made).cast_column(column, kind)
            described = describe_row(rows, 0)
            assert opened(described.pop("picture")).size == (SIDE, SIDE // 4)
            assert described == {"id": "3", "question": "How many?", "answer": "0"}


def test_a_drawing_of_a_few_pixels_keeps_each_of_them_and_what_is_transparent_is_white():
    small = Pillow.effect_noise((56, 56), 90).convert("RGB")
    pictures = [small, Pillow.new("RGBA", (8, 8), (0, 0, 0, 0))]
    rows = Dataset.from_dict({"image": pictures}).cast_column("image", Image())
    assert opened(describe_row(rows, 0)["picture"]).tobytes() == small.tobytes()
    assert opened(describe_row(rows, 1)["picture"]).getpixel((4, 4)) == (255, 255, 255)
    assert describe_row(rows, 0, picture=False) == describe_row(Dataset.from_dict({"limit": [1]}), 0) == {}


def test_long_texts_are_cut_and_a_transform_is_not_called():
    rows = Dataset.from_dict({"prompt": ["long " * MOST_SIGNS], "answer": [None], "solution": ["42"]})
    rows = rows.with_transform(lambda batch: pytest.fail("the transform was called"))
    described = describe_row(rows, 0)
    assert len(described["question"]) == MOST_SIGNS
    assert described["answer"] == "42"


def test_the_texts_of_all_prompts_are_read_without_a_picture_or_a_transform():
    asked = [{"role": "user", "content": [{"type": "text", "text": f"How many? {n}"}]} for n in range(3)]
    rows = Dataset.from_dict({"prompt": [[each] for each in asked], "image": [{"bytes": b"none", "path": None}] * 3})
    rows = rows.cast_column("image", Image()).with_transform(lambda batch: pytest.fail("the transform was called"))
    assert [*prompt_texts(rows.select([2, 0]))] == ["How many? 2", "How many? 0"]
    assert [*prompt_texts(Dataset.from_dict({"prompt": ["plain", None]}))] == ["plain", ""]
    assert [*prompt_texts(Dataset.from_dict({"question": ["a", "b"]}))] == ["", ""]


def named(dataset):
    return names_and_tasks(dataset, sample_keys(dataset), np.arange(len(dataset)), "task")["sample_id"]


def named_rows(ids):
    return Dataset(pa.table({"id": ids, "prompt": [f"question {i}" for i in range(len(ids))]}))


def test_an_id_is_the_name_and_a_row_without_one_has_its_key():
    for ids in (
        pa.array(["geo-1", "", None, "a b"]),
        pa.array([0, 2**64 - 1, 2**63], pa.uint64()),
        pa.array([True, False]),
        pa.array([0.0, float("nan"), 1e16, -0.0]),
        pa.array([0, 3600, 7200], pa.timestamp("s", "Europe/Berlin")),
        pa.array([Decimal("1.00"), Decimal("1.10")]),
        pa.nulls(1),
    ):
        dataset = named_rows(ids).select(range(len(ids))[::-1])
        keys = [key_text(key) for key in sample_keys(dataset).tolist()]
        texts = [key if one is None else str(one) for one, key in zip(dataset["id"], keys, strict=True)]
        assert named(dataset) == named(dataset.with_format("numpy")) == texts
    for ids in ([[1], [2], [3]], [b"a", b"b", b"c"]):  # without a text
        for dataset in (named_rows(pa.array(ids)), named_rows(pa.array(ids)).remove_columns("id")):
            assert named(dataset) == [key_text(key) for key in sample_keys(dataset).tolist()]


def test_a_table_of_a_posterior_gets_the_names_and_tasks_of_its_rows_only():
    dataset = named_rows(pa.array(list("abcd"))).add_column("task", ["x", None, "y", "x"])
    keys, visited = sample_keys(dataset), np.array([1, 3])
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
