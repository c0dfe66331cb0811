"""`data.image_variants`: the same to the byte each time, all over the picture, and of the same size."""

import numpy as np
import pytest
from PIL import Image

from tests.support.refusals import refused
from trl_vade.data.image_variants import IMAGE_KINDS, LEVELS, changed_image, question_drawn
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
        dark = np.asarray(changed_image(line, "rotation-2", str(row)).convert("L"), dtype=float) < 128
        heights = [np.average(np.arange(101), weights=dark[:, column] + 1e-9) for column in (30, 70)]
        degrees = np.degrees(np.arctan2(heights[1] - heights[0], 40))
        assert 6 < abs(degrees) < 15
        sides.add(np.sign(degrees))
    assert sides == {-1.0, 1.0}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [(80, 80), (120, 60), (60, 120)])
def test_a_rotated_picture_keeps_its_corners(level, size):
    """Cut off, a label or a shape that the question is about could be gone."""
    framed = Image.new("RGB", size, "white")
    corners = [(0, 0), (size[0] - 6, 0), (0, size[1] - 6), (size[0] - 6, size[1] - 6)]
    for colour, corner in zip(("red", "lime", "blue", "black"), corners, strict=True):
        framed.paste(colour, (*corner, corner[0] + 6, corner[1] + 6))
    pixels = np.asarray(changed_image(framed, f"rotation-{level}", "row-1"), dtype=int)
    for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)):
        assert (np.abs(pixels - colour).sum(axis=2) < 150).sum() >= 9


def test_another_seed_gives_other_random_numbers(photo):
    made = {changed_image(photo, "gaussian-1", "row-1", seed).tobytes() for seed in (0, 1, 2)}
    assert len(made) == 3


@pytest.mark.parametrize("size", [(56, 56), (600, 300), (300, 900), (7, 5)])
def test_a_drawn_question_is_below_the_whole_picture_and_can_be_read(size):
    question = "What is the area of the rectangle?\nChoices:\nA. 12\nB. 24"
    plain = Image.new("RGB", size, (10, 200, 30))
    made, again = (question_drawn(plain, question) for _ in range(2))
    assert made.tobytes() == again.tobytes()
    assert made.crop((0, 0, *size)).tobytes() == plain.tobytes()
    text = np.asarray(made.convert("L"))[size[1] :]
    rows, columns = (np.flatnonzero((text < 128).any(axis=axis)) for axis in (1, 0))
    assert len(rows) >= 4 * 6  # four lines or more, of letters of at least six pixels
    assert columns[0] > 0
    assert columns[-1] < made.width - 1
    assert rows[0] > 0
    assert rows[-1] < len(text) - 1


def test_a_drawn_question_takes_about_a_fifth_of_a_large_picture():
    made = question_drawn(Image.new("RGB", (800, 1000)), "What is the area of the rectangle with the sides 3 and 4?")
    assert 0.1 < made.height / 1000 - 1 <= 0.22


def test_a_question_with_signs_that_the_font_lacks_is_not_drawn():
    plain = Image.new("RGB", (80, 80))
    assert question_drawn(plain, "Which is \u9762?") is None
    assert question_drawn(plain, "Which is 5 \u00b0?\n\tThis") is not None


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_pictures_of_any_mode_are_taken(mode):
    assert changed_image(Image.new(mode, (8, 8)), "blur-1", "row-1").mode == "RGB"


@pytest.mark.parametrize(
    "kind", ["", "rotation", "rotation-4", "rotation-0", "twist-1", "gaussian-one", "salt-pepper"]
)
def test_a_kind_that_is_not_known_is_refused_with_those_that_are(photo, kind):
    with refused(ConfigurationError, [repr(kind)], ["rotation-1", "low-resolution-1"]):
        changed_image(photo, kind, "row-1")
