"""Variants as rows: lists become rows, and rows that do not fit together are refused."""

import pytest
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pictures

from tests.support.refusals import refused
from trl_vade.data.variant_rows import originals_of, read_variants, with_variants_as_rows
from trl_vade.errors import ConfigurationError


def prompt(text):
    return [{"role": "user", "content": text}]


def picture(shade):
    return Pictures.new("RGB", (4, 4), (shade, shade, shade))


def with_lists(**more):
    return Dataset.from_dict(
        {
            "prompt": [prompt("2+3?"), prompt("7*8?"), prompt("1+1?")],
            "answer": ["5", "56", "2"],
            "easier": [
                [{"kind": "hint-1", "prompt": prompt("2+3? count on from 2")}],
                [{"kind": "hint-1", "prompt": prompt("7*8? 7*7=49")}, {"kind": "text", "prompt": prompt("8*7?")}],
                [],
            ],
        }
        | more
    )


def as_rows(**changes):
    columns = {
        "id": ["a", "a/hint-1", "b", "b/hint-1"],
        "of": ["a", "a", "b", "b"],
        "kind": ["original", "hint-1", "original", "hint-1"],
        "prompt": [prompt(text) for text in ("2+3?", "2+3? 2, 3, 4", "7*8?", "7*8? 7*7=49")],
        "answer": ["5", "5", "56", "56"],
    }
    return Dataset.from_dict(columns | changes)


def test_lists_of_variants_become_rows_after_the_originals():
    rows = with_variants_as_rows(with_lists(id=["x", "y", "z"]), "easier")
    assert rows["id"] == ["x", "y", "z", "x/hint-1", "y/hint-1", "y/text"]
    assert rows["kind"] == ["original"] * 3 + ["hint-1", "hint-1", "text"]
    assert rows["prompt"][5] == prompt("8*7?")
    assert rows["answer"] == ["5", "56", "2", "5", "56", "56"]
    assert "easier" not in rows.column_names
    of, kinds = read_variants(rows, "of")
    assert of.tolist() == [0, 1, 2, 0, 1, 1]
    assert kinds == list(rows["kind"])


def test_rows_without_an_id_get_one_from_their_content():
    ids = with_variants_as_rows(with_lists(), "easier")["id"]
    assert len({*ids}) == 6
    again = with_variants_as_rows(with_lists().select([2, 0, 1]), "easier")["id"]
    assert {*ids} == {*again}


def test_a_variant_without_a_prompt_or_a_picture_of_its_own_takes_the_originals():
    features = Features(
        {
            "prompt": Value("string"),
            "image": Image(),
            "easier": List({"kind": Value("string"), "prompt": Value("string"), "image": Image()}),
        }
    )
    variants = [
        {"kind": "blur-1", "prompt": None, "image": picture(90)},
        {"kind": "text", "prompt": "How bright?", "image": None},
    ]
    columns = {"prompt": ["What shade?"], "image": [picture(200)], "easier": [variants]}
    rows = with_variants_as_rows(Dataset.from_dict(columns, features=features), "easier")
    assert rows["prompt"] == ["What shade?", "What shade?", "How bright?"]
    assert [image.getpixel((0, 0))[0] for image in rows["image"]] == [200, 90, 200]
    assert rows.features["image"] == Image()


def test_a_transform_of_the_rows_stays():
    rows = with_lists().with_transform(lambda batch: {"prompt": batch["prompt"]})
    expanded = with_variants_as_rows(rows, "easier")
    assert expanded[3] == {"prompt": prompt("2+3? count on from 2")}
    assert read_variants(expanded, "of")[0].tolist() == [0, 1, 2, 0, 1, 1]


def test_rows_that_name_their_original_stay_as_they_are():
    rows = as_rows()
    assert with_variants_as_rows(rows, "of") is rows
    assert read_variants(rows, "of")[0].tolist() == [0, 0, 2, 2]


def test_variants_of_a_row_that_is_not_there_are_left_out_and_told(caplog):
    rows = with_variants_as_rows(as_rows().select([0, 1, 3]), "of")
    assert rows["id"] == ["a", "a/hint-1"]
    assert "1 of 3 rows" in caplog.text


def test_only_originals_are_evaluated():
    assert originals_of(as_rows(), "of")["id"] == ["a", "b"]
    plain = with_lists()
    assert originals_of(plain, "easier") is plain


@pytest.mark.parametrize(
    ("rows", "column", "names"),
    [
        (with_lists(), "harder", ["'harder'", "prompt"]),
        (with_lists(), "answer", ["'answer'", "id and kind"]),
        (with_lists(easier=[["hint"], [], []]), "easier", ["'easier'", "string"]),
        (with_lists(easier=[[{"prompt": prompt("?")}], [], []]), "easier", ["'easier'", "kind"]),
        (with_lists(easier=[[{"kind": "text", "answer": "6"}], [], []]), "easier", ["'easier'", "answer"]),
        (with_lists(kind=["sum", "product", "sum"]), "easier", ["'easier'", "'kind'"]),
        (as_rows(of=[1, 1, 2, 2]), "of", ["'of'", "int64"]),
    ],
    ids=["no column", "no id", "texts", "no kind", "an answer of its own", "a kind of its own", "numbers"],
)
def test_a_column_that_holds_no_variants_is_refused(rows, column, names):
    with refused(ConfigurationError, names, ["vade_variants", "trl-vade variants"]):
        with_variants_as_rows(rows, column)


@pytest.mark.parametrize(
    ("changes", "names", "offers"),
    [
        ({"id": ["a", "a", "b", "b/hint-1"]}, ["'id'", "3", "4"], ["an id of its own"]),
        ({"answer": ["5", "6", "56", "56"]}, ["1 variants", "'answer'", "a/hint-1", "6", "5"], ["Correct"]),
        ({"prompt": [prompt("2+3?")] * 2 + [prompt("7*8?"), prompt("8*7?")]}, ["1 variants", "a/hint-1"], ["Remove"]),
    ],
    ids=["id twice", "other answer", "same content"],
)
def test_rows_that_do_not_fit_together_are_refused(changes, names, offers):
    with refused(ConfigurationError, names, offers):
        read_variants(as_rows(**changes), "of")
