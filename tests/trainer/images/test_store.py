"""What a processor gives out in a layout that nobody knows goes TRL's way. Known ones: families, in real runs."""

import pytest
import torch

from trl_vade.trainer.images.store import PixelStore, kept_once

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
