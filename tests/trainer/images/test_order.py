"""Completions of an image side by side, and the settings under which this is another loss."""

import pytest
import torch

from trl_vade.trainer.images.order import order_is_free, side_by_side


def batch(pictures):
    """Completions with so many pictures' numbers, of two rows of pixels each; None has no picture."""
    pixels = [torch.empty(0, 1, dtype=torch.int32) if one is None else torch.tensor([[2 * one]]) for one in pictures]
    return {"completion_ids": torch.zeros(len(pictures), 1), "pixel_values": pixels}


@pytest.mark.parametrize(
    ("pictures", "window", "wanted"),
    [
        ([3, 1, 3, 1], 4, [3, 3, 1, 1]),
        ([3, 1, 3, 1, 1, 3, 1, 3], 4, [3, 3, 1, 1, 1, 1, 3, 3]),
        ([3, 1, 3, 1, 1, 3, 1, 3], 8, [3, 3, 3, 3, 1, 1, 1, 1]),
        ([None, 1, None, 1, 2], 4, [None, None, 1, 1, 2]),
    ],
)
def test_images_stay_in_the_order_of_their_first_completion_within_each_window(pictures, window, wanted):
    order = side_by_side(batch(pictures), window, alone=True)
    assert [pictures[place] for place in order] == wanted
    assert sorted(order) == list(range(len(pictures)))
    firsts = [order.index(place) for place in range(len(pictures)) if pictures[place] == pictures[0]]
    assert firsts == sorted(firsts)


def test_rows_without_images_stay_in_place_beside_other_processes():
    assert side_by_side(batch([None, 1, None, 1]), 4, alone=False) == [0, 1, 2, 3]
    assert side_by_side(batch([2, 1, 2, 1]), 4, alone=False) == [0, 2, 1, 3]


@pytest.mark.parametrize(
    "changes", [{}, {"pixel_values": torch.zeros(0)}, {"pixel_values": [torch.zeros(2, 3)] * 4}], ids=str
)
def test_a_batch_without_numbers_keeps_its_order(changes):
    assert side_by_side({"completion_ids": torch.zeros(4, 1)} | changes, 4, alone=True) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_type": "bnpo"},
        {"entropy_coef": 0.1},
        {"top_entropy_quantile": 0.5},
        {"vade_down_sampling": "d3s"},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
    ],
    ids=str,
)
def test_the_order_is_not_free_where_a_micro_batch_has_a_mean_of_its_own(make_args, changes):
    assert order_is_free(make_args())
    assert not order_is_free(make_args(per_device_train_batch_size=8, **changes))
