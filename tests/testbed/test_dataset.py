"""The testbed's rows: every answer is read back from the pixels by code of its own."""

import hashlib
import re
from collections import Counter

import numpy as np
import pytest
from scipy import ndimage

from tests.support.refusals import refused
from trl_vade.testbed import build_dataset, load_testbed_dataset
from trl_vade.testbed import dataset as dataset_module
from trl_vade.testbed.dataset import cached_directory
from trl_vade.testbed.scenes import BACKGROUND, COLOURS, GLYPHS, LEVELS, TASKS, draw_scene

INK = {rgb: name for name, rgb in COLOURS.items()}


@pytest.fixture(scope="module")
def splits():
    return build_dataset(360, 120, seed=0, progress=False)


def blobs(image):
    """Every connected patch of one ink as (colour, pixels (M, 2) of row and column), 8 neighbours."""
    pixels = np.asarray(image)
    parts = []
    for rgb, colour in INK.items():
        labels, count = ndimage.label((pixels == rgb).all(axis=-1), np.ones((3, 3)))
        parts += [(colour, np.argwhere(labels == number)) for number in range(1, count + 1)]
    return parts


def read_digit(pixels):
    """The digit whose bitmap agrees with the middle of every 4 x 4 dot."""
    top, left = pixels[:, 0].min(), pixels[:, 1].min()
    dots = {((y - top) // 4, (x - left) // 4) for y, x in pixels}
    for value, glyph in enumerate(GLYPHS):
        inked = {(row, column) for row, line in enumerate(glyph) for column, dot in enumerate(line) if dot == "#"}
        shift = min(column for _, column in inked)
        if dots == {(row, column - shift) for row, column in inked}:
            return value
    raise AssertionError("no digit has these dots")


def read_digits(found):
    """Digits from left to right; a glyph whose strokes meet at corners only is still one blob."""
    return [read_digit(pixels) for _, pixels in sorted(found, key=lambda blob: blob[1][:, 1].mean())]


def solve(question, image):
    """Answer a question from the picture alone."""
    found = blobs(image)
    if question.startswith("How many"):
        asked = re.fullmatch(r"How many (?:(\w+) )?shapes are there\?", question).group(1)
        return str(sum(asked in (None, colour) for colour, _ in found))
    if "bar" in question:
        return str(sum((np.ptp(pixels[:, 0]) + 1) // 5 for _, pixels in found))
    if "digit" in question:
        values = read_digits(found)
        return str(int(np.prod(values)) if "product" in question else sum(values))
    if question == "What colour is the shape?":
        return found[0][0]

    def at(place):
        for colour, pixels in found:
            row, column = pixels.mean(axis=0)
            words = {"left" if column < 28 else "right", "top" if row < 28 else "bottom"}
            if set(place.split()) <= words:
                return colour
        raise AssertionError(f"nothing at {place}")

    first, second = re.fullmatch(r"What colours are the (.+) shape and the (.+) shape\?", question).groups()
    return f"{at(first)} {at(second)}"


def test_rows_have_the_columns_that_the_trainer_reads_and_equal_shares_of_tasks_and_levels(splits):
    row = splits["train"][0]
    assert splits["train"].features == dataset_module.FEATURES
    assert row["prompt"] == [{"role": "user", "content": "How many shapes are there?"}]
    assert [(image.size, image.mode, image.format) for image in row["images"]] == [((56, 56), "RGB", "PNG")]
    assert np.asarray(row["images"][0])[0, 0].tolist() == list(BACKGROUND)
    for split, share in (("train", 30), ("validation", 10)):
        cells = Counter(zip(splits[split]["task"], splits[split]["level"], strict=True))
        assert cells == {(task, level): share for task in TASKS for level in LEVELS}


@pytest.mark.slow
def test_every_answer_can_be_read_from_its_picture(splits):
    for row in splits["train"].select(range(0, splits["train"].num_rows, 5)):
        question, image = row["prompt"][0]["content"], row["images"][0]
        assert solve(question, image) == row["answer"], (row["id"], question)


@pytest.mark.slow
def test_no_answer_can_be_guessed_one_time_in_four():
    for task in TASKS:
        for level in LEVELS:
            rng = np.random.default_rng(0)
            answers = Counter(draw_scene(task, level, rng).answer for _ in range(400))
            assert max(answers.values()) / 400 < 0.25, (task, level, answers)
            assert len(answers) >= 6


def test_the_rows_are_those_of_the_published_figures_and_another_seed_gives_others(splits):
    told = [list(rows[column]) for rows in splits.values() for column in ("id", "answer")]
    digest = hashlib.sha256(repr(told).encode()).hexdigest()
    assert digest.startswith("7b00a16df509fd67")  # an id tells the question and the pixels
    again, other = (build_dataset(36, 12, seed=seed, progress=False)["train"] for seed in (0, 1))
    assert again["id"] == splits["train"]["id"][:36]
    assert not set(other["id"]) & set(again["id"])
    assert again._fingerprint != other._fingerprint


@pytest.mark.slow
def test_no_scene_of_any_seed_is_on_both_sides_of_the_split(splits):
    def contents(rows):
        return {(row["prompt"][0]["content"], row["images"][0].tobytes()) for row in rows}

    train, validation = contents(splits["train"]), contents(splits["validation"])
    assert (len(train), len(validation)) == (360, 120)
    assert len(set(splits["train"]["id"]) | set(splits["validation"]["id"])) == 480
    assert not train & validation
    other = build_dataset(360, 120, seed=7, progress=False)
    assert not contents(other["train"]) & validation
    assert not contents(other["validation"]) & train


def test_a_family_that_is_used_up_is_an_error_and_not_an_endless_loop(monkeypatch):
    one = draw_scene("math", 1, np.random.default_rng(0))
    monkeypatch.setattr(dataset_module, "draw_scene", lambda task, level, rng: one)
    side = "validation" if dataset_module.scene_digest(one)[0] % dataset_module.VALIDATION_SHARE == 0 else "train"
    scenes = dataset_module.iter_scenes(side, 0)
    next(scenes)
    with refused(ValueError, ["'chart'", "level 1", "'train'"], ["fewer rows"]):
        next(scenes)


def test_the_cached_copy_is_the_built_one_and_is_not_built_twice(tmp_path, monkeypatch):
    built = build_dataset(24, 12, progress=False)
    first = load_testbed_dataset(24, 12, cache_dir=tmp_path, progress=False)
    monkeypatch.setattr(dataset_module, "build_dataset", lambda *_, **__: pytest.fail("built a second time"))
    second = load_testbed_dataset(24, 12, cache_dir=tmp_path, progress=False)
    for split in ("train", "validation"):
        for copy in (first, second):
            assert copy[split].features == built[split].features
            assert copy[split]._fingerprint == built[split]._fingerprint
            assert copy[split][:] == built[split][:]


def test_a_build_that_dies_leaves_nothing_behind_and_of_two_that_race_the_first_wins(tmp_path):
    def dies(directory):
        (directory / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_directory("thing", {"a": 1}, dies, tmp_path)
    assert list(tmp_path.iterdir()) == []

    def slow(directory):
        (directory / "by").write_text("second")
        cached_directory("thing", {"a": 1}, lambda inner: (inner / "by").write_text("first"), tmp_path)

    directory = cached_directory("thing", {"a": 1}, slow, tmp_path)
    assert (directory / "by").read_text() == "first"
    assert list(tmp_path.iterdir()) == [directory]
    assert cached_directory("thing", {"a": 2}, lambda directory: None, tmp_path) != directory
