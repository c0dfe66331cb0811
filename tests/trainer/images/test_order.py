"""Completions of an image side by side, and the settings under which this is another loss."""

import torch

from trl_vade.trainer.batch_rows import images_to_move, side_by_side
from trl_vade.trainer.config_checks import order_is_free


def ordered(pictures, window, alone=True):
    """The order of completions with so many pictures' numbers, of two rows of pixels each; None has no picture."""
    pixels = [torch.empty(0, 1, dtype=torch.int32) if one is None else torch.tensor([[2 * one]]) for one in pictures]
    return side_by_side(images_to_move({"pixel_values": pixels}, alone=alone), window)


def test_images_stay_in_the_order_of_their_first_completion_within_each_window():
    assert ordered([3, 1, 3, 1], 4) == [0, 2, 1, 3]
    assert ordered([3, 1, 3, 1, 1, 3, 1, 3], 4) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert ordered([3, 1, 3, 1, 1, 3, 1, 3], 8) == [0, 2, 5, 7, 1, 3, 4, 6]
    assert ordered([None, 1, None, 1, 2], 4) == [0, 2, 1, 3, 4]
    assert ordered([2, 1, 2, 1], 4, alone=False) == [0, 2, 1, 3]


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
