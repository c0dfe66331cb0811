"""Copies of rows: equal, nothing shared that can be changed, and no guess at what cannot be copied."""

import datetime
import decimal
import threading
import uuid

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ImageDraw

from tests.support.pictures import FORMATS, MODES, as_decoded, file_of, gradient
from trl_vade.data.decoding import own_values

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.dates()
)
VALUES = st.recursive(
    LEAVES,
    lambda part: st.lists(part) | st.tuples(part, part) | st.dictionaries(st.text(max_size=3), part),
    max_leaves=20,
)


def walk(value):
    yield value
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from walk(part)


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_a_copy_is_equal_and_shares_no_list_and_no_dictionary(row):
    copied = own_values(row)
    assert copied == row
    changeable = {id(each) for each in walk(row) if isinstance(each, dict | list)}
    assert not changeable & {id(each) for each in walk(copied)}


def test_what_cannot_be_changed_is_taken_as_it_is():
    moments = datetime.datetime(2026, 1, 2), datetime.timedelta(3)
    for value in (*moments, decimal.Decimal("0.1"), uuid.UUID(int=7), np.float32(0.5)):
        assert own_values({"a": [value, [1]]})["a"][0] == value


def test_arrays_and_tensors_are_copied_and_of_a_view_no_more_than_it_shows():
    batch, array = torch.arange(12.0).reshape(3, 4), np.arange(6)
    copied = own_values({"tensor": batch[1], "array": array[2:4]})
    assert copied["tensor"].equal(batch[1])
    assert copied["tensor"].untyped_storage().nbytes() == 4 * 4
    assert copied["array"].tolist() == [2, 3]
    copied["tensor"][0], copied["array"][0] = -1, -1
    assert batch[1, 0] == 4
    assert array[2] == 2


def test_one_object_in_two_columns_stays_one_as_a_transform_has_made_it():
    image = gradient()
    copied = own_values({"image": image, "prompt": [{"content": [{"image": image}]}]})
    assert copied["image"] is copied["prompt"][0]["content"][0]["image"]
    assert copied["image"] is not image


def test_a_picture_keeps_its_metadata_and_shares_no_pixel():
    for file in (*MODES, *FORMATS):
        image, untouched = as_decoded(file), as_decoded(file)
        copied = own_values({"image": image})["image"]
        assert copied == untouched.copy()  # mode, size, metadata, palette and pixels
        if "exif" in untouched.info:  # a copy of a TIFF has no tags of its file
            assert dict(copied.getexif()) == dict(untouched.getexif())
        ImageDraw.Draw(copied).rectangle((0, 0, 5, 5), fill=1)
        copied.load()[7, 7] = copied.getpixel((1, 1))
        copied.info["mark"] = True
        copied.getexif()[270] = "mark"
        if copied.palette is not None:
            copied.putpalette([9] * 768)
        assert image == untouched != copied
        assert dict(image.getexif()) == dict(untouched.getexif())


class Decoder:
    """Stands for an object around a pointer, which a `deepcopy` would take for plain data."""


def test_a_value_of_another_kind_is_not_copied_wherever_it_stands():
    film = as_decoded(file_of(gradient(), "GIF", save_all=True, append_images=[gradient().rotate(180)]))
    objects, subclass = np.array([[1], None], dtype=object), type("Row", (dict,), {})(a=1)
    for value in (Decoder(), threading.Lock(), objects, subclass, film):
        with pytest.raises(TypeError):
            own_values({"a": [{"b": value}]})
