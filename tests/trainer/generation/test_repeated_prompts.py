"""Prompts that stand side by side once for each completion are seen as one."""

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

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


IMAGE = picture()


def test_completions_of_a_row_share_its_image_also_after_trls_deep_copy():
    assert len(equal_neighbours(copy.deepcopy([message(IMAGE)] * 3))) == 1


@pytest.mark.parametrize(
    "other",
    [
        message(picture()),
        message(IMAGE, "how many?"),
        message(None),
        [*message(IMAGE), {"role": "user", "content": "and now?"}],
        [{"role": "user", "content": "what is it?"}],
        "what is it?",
    ],
)
def test_another_image_text_turn_or_form_is_another_prompt(other):
    assert len(equal_neighbours([message(IMAGE), other])) == 2


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
