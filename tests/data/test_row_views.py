"""Rows as a person reads them: texts of every shape of a prompt, and pictures of every mode."""

import base64
import io

import pytest
from datasets import Dataset, Image, List
from PIL import Image as Pillow

from trl_vade.data.row_views import MOST_SIGNS, SIDE, describe_row, plain_text, prompt_texts

ASKED = {"role": "user", "content": "How many?"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ("a plain text", "a plain text"),
        (None, ""),
        ([], ""),
        ([{"role": "system", "content": "Be short."}, ASKED], "How many?"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]}], "How many?"),
        ([{"role": "assistant", "content": None}, {"role": "tool", "content": "7"}], "7"),
        ([{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}], "first\nsecond"),
    ],
)
def test_the_text_of_a_prompt_is_the_question_at_its_end_or_all_that_was_said(messages, text):
    assert plain_text(messages) == text


def opened(url):
    return Pillow.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2])))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "1", "CMYK"])
@pytest.mark.parametrize("column", ["image", "images"])
def test_a_row_has_its_texts_and_a_small_picture(mode, column):
    large = Pillow.new("RGB", (2000, 500), "red").convert(mode)
    rows = Dataset.from_dict({"id": [3], "prompt": [[ASKED]], "solution": [0], "extra": ["not shown"]})
    value, kind = (large, Image()) if column == "image" else ([large, large], List(Image()))
    rows = rows.add_column(column, [None]).map(lambda row: {column: value}).cast_column(column, kind)
    described = describe_row(rows, 0)
    picture = opened(described.pop("picture"))
    assert described == {"id": "3", "question": "How many?", "answer": "0"}
    assert picture.size == (SIDE, SIDE // 4)


def test_a_drawing_of_a_few_pixels_keeps_each_of_them():
    small = Pillow.effect_noise((56, 56), 90).convert("RGB")
    rows = Dataset.from_dict({"prompt": ["Which?"], "image": [small]}).cast_column("image", Image())
    assert opened(describe_row(rows, 0)["picture"]).tobytes() == small.tobytes()
    assert "picture" not in describe_row(rows, 0, picture=False)


def test_what_is_transparent_is_white():
    rows = Dataset.from_dict({"image": [Pillow.new("RGBA", (8, 8), (0, 0, 0, 0))]}).cast_column("image", Image())
    assert opened(describe_row(rows, 0)["picture"]).getpixel((4, 4)) == (255, 255, 255)


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


def test_a_row_without_any_of_it_is_described_by_nothing():
    assert describe_row(Dataset.from_dict({"limit": [1]}), 0) == {}
