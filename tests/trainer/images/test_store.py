"""Columns of numbers in place of pixels, in the layouts of TRL 1.16. All families, in real runs: test_families.py."""

import pytest
import torch

from trl_vade.trainer.images.store import PixelStore, kept_once

# Three distinct rows: with picture 1, with pictures 2 and 1, and without any; asked for seven times.
IMAGES = [(1,), (2, 1), ()]
PLACES = [0, 0, 1, 1, 2, 2, 1]
WANTED = [picture for place in PLACES for picture in IMAGES[place]]


def pixels_of(pictures, rows_of):
    """Those of pictures that have so many rows each."""
    return torch.cat([torch.rand(rows_of(one), 3, generator=torch.Generator().manual_seed(one)) for one in pictures])


def output(rows_of, **more):
    """What a processor returns for the distinct rows."""
    return {"input_ids": [[0], [1, 1], [2, 2, 2]], "pixel_values": pixels_of([1, 2, 1], rows_of)} | more


@pytest.mark.parametrize(
    ("rows_of", "name", "values"),
    [
        (lambda one: 4 * one, "image_grid_thw", {1: [1, 2, 2], 2: [1, 2, 4]}),
        (lambda one: 1, "image_sizes", {1: [7, 8], 2: [9, 9]}),
    ],
)
def test_a_picture_is_kept_once_also_for_two_rows(rows_of, name, values):
    given, store = output(rows_of, **{name: torch.tensor([values[1], values[2], values[1]])}), PixelStore()
    found = kept_once(given, IMAGES, PLACES, store)
    assert [*found] == [*given]
    assert store.bytes == 4 * 3 * (rows_of(1) + rows_of(2))
    assert store.tensors["pixel_values"][found["pixel_values"].flatten()].equal(pixels_of(WANTED, rows_of))
    assert found["pixel_values"].shape == (sum(map(rows_of, WANTED)), 1)
    assert found[name].tolist() == [values[one] for one in WANTED]
    assert found["input_ids"] == [given["input_ids"][place] for place in PLACES]


@pytest.mark.parametrize(
    "given",
    [
        output(lambda one: 1, a_new_field=torch.zeros(3)),
        output(lambda one: 5),
        output(lambda one: 4, image_grid_thw=torch.tensor([[1, 2, 2]] * 2 + [[1, 2, 3]])),
    ],
    ids=["a field", "lengths", "a grid that does not add up"],
)
def test_an_unknown_layout_is_left_alone(given):
    store = PixelStore()
    assert kept_once(given, IMAGES, PLACES, store) is None
    assert store.tensors == {}
