"""`data.image_variants`: the same to the byte each time, all over the picture, and of the same size."""

import numpy as np
import pytest
from PIL import Image

from tests.support.refusals import refused
from trl_vade.data.image_variants import IMAGE_KINDS, LEVELS, changed_image
from trl_vade.errors import ConfigurationError

KINDS = [f"{name}-{level}" for name in IMAGE_KINDS for level in LEVELS]


@pytest.fixture
def photo():
    """A picture of 48 x 32 with stripes: red grows to the right, green downwards."""
    across, down = np.meshgrid(np.arange(48), np.arange(32))
    return Image.fromarray(np.stack([across * 5, down * 8, across // 4 % 2 * 120 + 60], axis=2).astype(np.uint8))


def away(left, right):
    """(H, W) largest difference of the channels."""
    return np.abs(np.asarray(left, dtype=int) - np.asarray(right, dtype=int)).max(axis=2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_the_same_each_time_and_another_picture_than_before(photo, kind):
    one, again = (changed_image(photo, kind, "row-1") for _ in range(2))
    assert one.tobytes() == again.tobytes()
    assert (one.mode, one.size) == ("RGB", photo.size)
    assert away(one, photo).max() > 0


@pytest.mark.parametrize("name", ["rotation", "gaussian", "salt-pepper", "speckle"])
def test_each_row_and_each_kind_has_random_numbers_of_its_own(photo, name):
    made = {changed_image(photo, f"{name}-2", row).tobytes() for row in ("a", "b", "c")}
    assert len(made) == 3


@pytest.mark.parametrize("name", [name for name in IMAGE_KINDS if name != "rotation"])
def test_a_higher_level_changes_more(photo, name):
    change = [away(changed_image(photo, f"{name}-{level}", "row-1"), photo).mean() for level in LEVELS]
    assert change == sorted(change)
    assert change[0] < change[2]


@pytest.mark.parametrize("name", ["gaussian", "salt-pepper", "speckle"])
def test_noise_falls_on_the_whole_picture_and_keeps_the_order_of_the_channels(name):
    """The released code puts salt on the upper third and swaps red and blue."""
    grey = Image.fromarray(np.full((90, 90, 3), (200, 100, 50), dtype=np.uint8))
    made = changed_image(grey, f"{name}-3", "row-1")
    hit = away(made, grey) > 0
    assert all(part.mean() > 0.02 for part in np.array_split(hit, 3))
    red, green, blue = np.asarray(made).reshape(-1, 3).mean(axis=0)
    assert red > green > blue


def test_salt_and_pepper_make_whole_pixels_black_or_white(photo):
    made = np.asarray(changed_image(photo, "salt-pepper-3", "row-1"))
    hit = made[away(made, photo) > 0]
    assert {tuple(pixel) for pixel in hit.tolist()} == {(0, 0, 0), (255, 255, 255)}


def test_a_rotation_is_of_5_to_20_degrees_to_either_side_and_fills_the_corners_with_the_borders_colour():
    plain = Image.new("RGB", (60, 60), (10, 200, 30))
    assert np.unique(np.asarray(changed_image(plain, "rotation-3", "row-1")).reshape(-1, 3), axis=0).tolist() == [
        [10, 200, 30]
    ]
    line = Image.new("RGB", (101, 101), "white")
    line.paste("black", (0, 49, 101, 52))
    sides = set()
    for row in range(12):
        dark = 255 - np.asarray(changed_image(line, "rotation-2", str(row)).convert("L"), dtype=float)
        heights = [np.average(np.arange(101), weights=dark[:, column] + 1e-9) for column in (30, 70)]
        degrees = np.degrees(np.arctan2(heights[1] - heights[0], 40))
        assert 6 < abs(degrees) < 15
        sides.add(np.sign(degrees))
    assert sides == {-1.0, 1.0}


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_pictures_of_any_mode_are_taken(mode):
    assert changed_image(Image.new(mode, (8, 8)), "blur-1", "row-1").mode == "RGB"


@pytest.mark.parametrize(
    "kind", ["", "rotation", "rotation-4", "rotation-0", "twist-1", "gaussian-one", "salt-pepper"]
)
def test_a_kind_that_is_not_known_is_refused_with_those_that_are(photo, kind):
    with refused(ConfigurationError, [repr(kind)], ["rotation-1", "low-resolution-1"]):
        changed_image(photo, kind, "row-1")
