"""Columns of numbers in place of pixels, in the layouts of TRL 1.16."""

import pytest
import torch

from trl_vade.trainer.images.store import PixelStore, Rows, expanded

# Three distinct rows: with picture 1, with pictures 2 and 1, and without any; asked for seven times.
IMAGES = [[1], [2, 1], []]
INVERSE = [0, 0, 1, 1, 2, 2, 1]
GRIDS = {1: [1, 2, 2], 2: [1, 2, 4]}


def pixels_of(picture, rows):
    return torch.rand(rows, 3, generator=torch.Generator().manual_seed(picture))


def output(rows_of, images=IMAGES, **more):
    """What a processor returns for the distinct rows, whose pictures have so many rows of pixels."""
    flat = [picture for row in images for picture in row]
    ids = [[number] * (number + 1) for number in range(len(images))]
    return {"input_ids": ids, "pixel_values": torch.cat([pixels_of(one, rows_of(one)) for one in flat])} | more


def filled(found, store):
    """The pixels that the numbers stand for."""
    return store.tensors["pixel_values"][found["pixel_values"].flatten().long()]


def test_patches_with_a_grid_are_kept_once_also_for_a_picture_of_two_rows():
    grids = torch.tensor([GRIDS[1], GRIDS[2], GRIDS[1]])
    given, store = output(lambda one: 4 * one, image_grid_thw=grids), PixelStore()
    found = expanded(given, Rows(IMAGES, INVERSE), store)
    assert len(store.tensors["pixel_values"]) == 4 + 8
    each = {1: pixels_of(1, 4), 2: pixels_of(2, 8)}
    wanted = [each[one] for place in INVERSE for one in IMAGES[place]]
    assert filled(found, store).equal(torch.cat(wanted))
    assert found["image_grid_thw"].tolist() == [GRIDS[one] for place in INVERSE for one in IMAGES[place]]
    assert found["input_ids"] == [given["input_ids"][place] for place in INVERSE]
    assert found["pixel_values"].shape == (5 * 4 + 3 * 8, 1)


@pytest.mark.parametrize("name", ["image_sizes", "image_position_ids"])
def test_a_row_of_pixels_for_each_image_is_kept_once(name):
    values, store = torch.tensor([[1], [2], [1]]), PixelStore()
    found = expanded(output(lambda one: 1, **{name: values}), Rows(IMAGES, INVERSE), store)
    wanted = [one for place in INVERSE for one in IMAGES[place]]
    assert filled(found, store).equal(torch.cat([pixels_of(one, 1) for one in wanted]))
    assert found[name].flatten().tolist() == wanted


def test_all_images_of_a_row_together_have_one_number():
    given = {"input_ids": [[0], [1], [2]], "pixel_values": torch.rand(3, 2, 3, 4, 4)}
    given["pixel_attention_mask"] = torch.rand(3, 2, 4, 4)
    store = PixelStore()
    found = expanded(given, Rows(IMAGES, INVERSE), store)
    assert found["pixel_values"].shape == (7, 1, 1, 1, 1)
    assert found["pixel_attention_mask"].shape == (7, 1, 1, 1)
    assert filled(found, store).equal(given["pixel_values"][INVERSE])


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
    assert expanded(given, Rows(IMAGES, INVERSE), store) is None
    assert store.tensors == {}


def test_the_store_keeps_the_pixels_of_a_source_that_comes_again_and_replaces_others():
    moved, store = [], PixelStore(place=lambda value: moved.append(value) or value)
    first, second = torch.zeros(2, 3), torch.ones(4, 3)
    for pixels in (first, first, second):
        store.put({"pixel_values": pixels}, source=pixels)
    assert len(moved) == 2
    assert store.tensors["pixel_values"] is second
    assert store.bytes == 48


def test_neighbouring_spans_are_one_view():
    store = PixelStore(tensors={"pixel_values": torch.arange(10)})
    views = store.rows("pixel_values", [(0, 2), (2, 5), (7, 8), (3, 4)])
    assert [view.tolist() for view in views] == [[0, 1, 2, 3, 4], [7], [3]]
    assert views[0].data_ptr() == store.tensors["pixel_values"].data_ptr()
