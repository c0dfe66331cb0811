"""Prompts that stand side by side once for each completion are seen as one, whatever their images are."""

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.pictures import FORMATS, MODES, as_decoded
from trl_vade.data.own_values import own_values
from trl_vade.trainer.generation.repeated_prompts import equal_neighbours, tokenize_once


@given(st.lists(st.integers(0, 2)))
def test_runs_are_the_values_in_their_order_and_neighbouring_runs_differ(values):
    found = equal_neighbours(values)
    assert [value for run in found for value in run] == values
    assert all(len(set(run)) == 1 for run in found)
    assert all(a[0] != b[0] for a, b in itertools.pairwise(found))


def picture(ink=0):
    return Image.fromarray(np.full((4, 4, 3), ink, dtype=np.uint8))


def message(image, text="what is it?"):
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]


def test_a_prompt_equals_its_copy_as_an_evaluation_decodes_it_anew():
    assert len(equal_neighbours([message(picture()), message(picture())])) == 1
    prompts = copy.deepcopy([message(picture())] * 3)
    assert len(equal_neighbours(prompts)) == 1


@pytest.mark.parametrize(
    "other",
    [
        message(picture(1)),
        message(picture(), "how many?"),
        message(None),
        message(np.zeros((4, 4, 3))),
        [*message(picture()), {"role": "user", "content": "and now?"}],
        [{"role": "user", "content": "what is it?"}],
        "what is it?",
    ],
)
def test_another_image_text_turn_or_form_is_another_prompt(other):
    assert len(equal_neighbours([message(picture()), other])) == 2
    assert len(equal_neighbours([other, message(picture())])) == 2


@pytest.mark.parametrize("form", [np.asarray, torch.tensor], ids=["array", "tensor"])
def test_an_array_equals_its_copy_and_none_of_another_type_shape_or_content(form):
    plain = form(np.zeros((4, 4, 3), dtype=np.uint8))
    assert len(equal_neighbours([message(plain), message(form(np.zeros((4, 4, 3), dtype=np.uint8)))])) == 1
    others = [np.ones((4, 4, 3), dtype=np.uint8), np.zeros((4, 4, 1), dtype=np.uint8), np.zeros((4, 4, 3))]
    assert [len(equal_neighbours([message(plain), message(form(other))])) for other in others] == [2, 2, 2]


class Unknown:
    """Of a form whose `==` is no truth value, for all we know."""


def test_what_is_of_an_unknown_form_equals_only_itself():
    one = Unknown()
    assert len(equal_neighbours([message(one), message(one)])) == 1
    assert len(equal_neighbours([message(one), message(Unknown())])) == 2


@pytest.mark.parametrize("file", [*MODES, *FORMATS], ids=lambda file: str(len(file["bytes"])))
def test_pictures_of_every_kind_equal_their_copies_and_differ_by_a_pixel_a_palette_or_a_note(file):
    image, other, noted = as_decoded(file), as_decoded(file), as_decoded(file)
    copied = own_values({"image": image})["image"]
    assert len(equal_neighbours([message(image), message(copied), message(copy.deepcopy(copied))])) == 1
    other.putpixel((22, 16), other.getpixel((0, 0)))
    noted.info["note"] = 1
    assert len(equal_neighbours([message(image), message(other)])) == 2
    assert len(equal_neighbours([message(image), message(noted)])) == 2
    if image.mode == "P":
        copied.putpalette([*range(256)] * 3)
        assert len(equal_neighbours([message(image), message(copied)])) == 2


def test_pictures_that_pillow_keeps_in_several_parts_are_compared_too():
    large = [Image.new("RGB", (2600, 2600)) for _ in range(3)]  # 27 MB; a part has 16
    large[2].putpixel((2599, 2599), (1, 0, 0))
    assert [len(run) for run in equal_neighbours(list(map(message, large)))] == [2, 1]


@pytest.mark.skipif(not hasattr(Image.Image, "__arrow_c_array__"), reason="Pillow before 11.3 can only write them out")
def test_equal_pictures_are_not_written_out_to_be_compared(monkeypatch):
    """Pillow's `==` does, which took 0.2 s a batch of 64 pictures of a megapixel."""
    monkeypatch.setattr(Image.Image, "tobytes", None)
    assert len(equal_neighbours([message(picture()), message(picture())])) == 1


def test_each_run_of_equal_prompts_is_tokenised_once_and_its_images_stay_the_same_objects():
    image = object()
    prompts = [["a", image]] * 3 + [["b"]] * 2 + [["a", image]]
    seen = []

    def tokenize(some):
        seen.append(some)
        return [[len(seen), i] for i, _ in enumerate(some)], [prompt[1:] or None for prompt in some], {"pixels": 1}

    ids, images, fields = tokenize_once(prompts, tokenize)
    assert seen == [[["a", image], ["b"], ["a", image]]]
    assert ids == [[1, 0]] * 3 + [[1, 1]] * 2 + [[1, 2]]
    assert [each and each[0] for each in images] == [image] * 3 + [None] * 2 + [image]
    assert fields == {}


def test_prompts_without_images_stay_without():
    assert tokenize_once(["a", "a"], lambda some: ([[1]] * len(some), None, {})) == ([[1], [1]], None, {})
