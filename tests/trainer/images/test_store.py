"""Completions of an image side by side, where that is another loss, and pixels of a layout that nobody knows."""

import pytest
import torch

from trl_vade.trainer.batch_rows import images_to_move, side_by_side
from trl_vade.trainer.config_checks import order_is_free
from trl_vade.trainer.images.store import PixelStore, kept_once


def ordered(pictures, window, alone=True):
    """The order of completions with so many pictures' numbers, of two rows of pixels each; None has no picture."""
    pixels = [torch.empty(0, 1, dtype=torch.int32) if one is None else torch.tensor([[2 * one]]) for one in pictures]
    return side_by_side(images_to_move({"pixel_values": pixels}, alone=alone), window)


@pytest.mark.parametrize(
    ("pictures", "window", "order"),
    [
        ([3, 1, 3, 1], 4, [0, 2, 1, 3]),
        ([3, 1, 3, 1, 1, 3, 1, 3], 4, [0, 2, 1, 3, 4, 6, 5, 7]),
        ([3, 1, 3, 1, 1, 3, 1, 3], 8, [0, 2, 5, 7, 1, 3, 4, 6]),
        ([None, 1, None, 1, 2], 4, [0, 2, 1, 3, 4]),
    ],
)
def test_images_stay_in_the_order_of_their_first_completion_within_each_window(pictures, window, order):
    assert ordered(pictures, window) == order


def test_rows_without_images_beside_other_processes_and_batches_without_numbers_stay_in_place():
    assert ordered([None, 1, None, 1], 4, alone=False) == []  # nothing moves
    for pixels in ({}, {"pixel_values": torch.zeros(0)}, {"pixel_values": [torch.zeros(2, 3)] * 4}):
        assert images_to_move(pixels, alone=True) == []


def test_the_order_is_not_free_where_a_micro_batch_has_a_mean_of_its_own(make_args):
    changes = [
        {"loss_type": "bnpo"},
        {"entropy_coef": 0.1},
        {"top_entropy_quantile": 0.5},
        {"vade_down_sampling": "d3s"},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
    ]
    assert order_is_free(make_args())
    assert [each for each in changes if order_is_free(make_args(per_device_train_batch_size=8, **each))] == []


# ------------------------------------------------------------------------------------------------------ the store

# Three distinct rows: with picture 1, with pictures 2 and 1, and without any; asked for seven times.
IMAGES, PLACES = [(1,), (2, 1), ()], [0, 0, 1, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("pixels", "more"),
    [
        (3, {"a_new_field": torch.zeros(3)}),
        (15, {}),
        (12, {"image_grid_thw": torch.tensor([[1, 2, 2]] * 2 + [[1, 2, 3]])}),
    ],
    ids=["a field", "lengths", "a grid that does not add up"],
)
def test_an_unknown_layout_is_left_alone(pixels, more):
    given, store = {"input_ids": [[0], [1, 1], [2, 2, 2]], "pixel_values": torch.rand(pixels, 3)}, PixelStore()
    assert kept_once(given | more, IMAGES, PLACES, store) is None
    assert store.tensors == {}
    found = kept_once(given | {"pixel_values": torch.rand(3, 3)}, IMAGES, PLACES, store)
    assert found["pixel_values"].flatten().tolist() == [0, 0, 1, 0, 1, 0, 1, 0]  # of picture 1 first, and each once


def test_pixels_of_older_rows_are_padded_as_a_processor_pads():
    store = PixelStore({"pixel_values": torch.ones(2, 3, 4)}, of_rows=[5])
    assert store.append({"pixel_values": torch.full((1, 2, 5), 2.0)}) == 2
    assert (len(store), store.older, store.tensors["pixel_values"].shape) == (3, 1, (3, 3, 5))
    assert store.tensors["pixel_values"][2].tolist() == [[2.0] * 5, [2.0] * 5, [0.0] * 5]
    assert store.tensors["pixel_values"][:2, :, :4].eq(1).all()
    assert store.tensors["pixel_values"][:2, :, 4].eq(0).all()
