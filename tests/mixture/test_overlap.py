"""Evaluation sets in the mixture: what is taken for the same, what is not, and the columns of the sets."""

import json
from io import BytesIO

import pytest
from datasets import Image, List, Value
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pictures
from PIL import ImageDraw

from scripts.mixture.overlap import EvaluationSets, image_fingerprint, read_evaluation_sets
from tests.support.mixture_stand_ins import FINAL, picture, write_card, write_files, write_math_vista
from trl_vade.errors import ConfigurationError

TEXT = Value("string")
QUESTION = "How many bars are taller than the green one?"
CHOICES = ["two", "three"]


def drawing(corners, kind="PNG", size=200, **settings):
    """A figure of geometry: black lines on white."""
    image, buffer = Pictures.new("RGB", (200, 200), "white"), BytesIO()
    ImageDraw.Draw(image).polygon(corners, outline="black", width=3)
    image.resize((size, size)).save(buffer, kind, **settings)
    return buffer.getvalue()


NINE = picture(9)
FIGURE, OTHER = drawing([(20, 20), (180, 40), (60, 170)]), drawing([(30, 30), (170, 30), (170, 160), (30, 160)])


def one_set(question=QUESTION, image=None, choices=CHOICES, **settings):
    sets = EvaluationSets(**settings)
    sets.add("bench", [question], choices, [] if image is None else [image])
    return sets


def found(sets, question=QUESTION, choices=CHOICES, image=FIGURE):
    return sets.with_question(question, choices, image)


@given(st.binary(min_size=27, max_size=27))
def test_the_same_pixels_in_another_lossless_file_are_the_same_image(pixels):
    image, files = Pictures.frombytes("RGB", (3, 3), pixels), {}
    for kind in ("PNG", "BMP", "TIFF", "WEBP"):
        buffer = BytesIO()
        image.save(buffer, kind, lossless=True)
        files[kind] = buffer.getvalue()
    assert len(set(files.values())) == 4
    assert len({image_fingerprint(file) for file in files.values()}) == 1
    assert one_set(image=files["BMP"]).with_image(files["PNG"], (3, 3)) == ["bench"]


def test_other_pixels_another_shape_and_a_damaged_file_are_other_images():
    sets = one_set(image=picture(5, size=(4, 6)))
    assert sets.with_image(picture(6, size=(4, 6)), (4, 6)) == []
    assert sets.with_image(picture(5, size=(6, 4)), (6, 4)) == []
    sets.sizes.add((6, 4))
    assert sets.with_image(picture(5, size=(6, 4)), (6, 4)) == []
    assert sets.with_image(b"no image at all", (7, 7)) == []  # of a size that no set has: it is not even decoded
    assert found(one_set(image=FIGURE), choices=None, image=FIGURE[:60]) == []
    assert one_set(image=picture(5)[:30]).names == {"bench": {"images": 0, "questions": 1, "unreadable": 1}}


def test_the_same_letters_and_digits_are_the_same_question_and_short_ones_say_nothing():
    full_width = "\uff28\uff4f\uff57 many bars are taller than the green one?"
    for question in ("how many bars are  taller than the GREEN one ?!", full_width):
        assert found(one_set(), question) == ["bench"]
    assert found(one_set(f"{FINAL}{QUESTION}\nChoices:\n(A) two\n(B) three", choices=None)) == ["bench"]
    assert found(one_set(), "How many bars are taller than the red one?") == []
    six, five = "one two three four five six", "one two three four five"
    assert (found(one_set(six), six), found(one_set(five), five)) == (["bench"], [])
    assert found(one_set("What is x?", min_words=3), "What is x?") == ["bench"]


def test_a_question_is_one_with_a_similar_picture_or_without_any_with_the_same_choices_in_any_order():
    """ "Which of the following statements is true?" of ScienceQA is asked of many pictures."""
    sets, others = one_set(image=FIGURE), ["four", "five"]
    for choices in (CHOICES, others, None):
        assert found(sets, choices=choices, image=OTHER) == []
    assert found(one_set(image=FIGURE, choices=None), image=OTHER) == []
    assert found(one_set(), choices=["Three.", "two"]) == ["bench"]
    assert found(one_set(), choices=others) == found(one_set(), choices=None) == []
    smaller = drawing([(20, 20), (180, 40), (60, 170)], "JPEG", 120, quality=70)
    assert found(sets, choices=None) == found(sets, choices=others, image=smaller) == ["bench"]
    assert sets.with_image(smaller, (200, 200)) == []


def test_a_known_benchmark_is_read_by_its_own_columns(tmp_path):
    """MathVista has the image in `decoded_image`, and in `image` a path."""
    write_math_vista(tmp_path / "AI4Math" / "MathVista", [(QUESTION, picture(1)), ("Short?", picture(2))])
    sets = read_evaluation_sets(["AI4Math/MathVista@testmini"], mirror=tmp_path)
    assert sets.names == {"AI4Math/MathVista@testmini": {"images": 2, "questions": 1, "unreadable": 0}}
    assert sets.with_image(picture(2, "BMP"), (28, 28)) == ["AI4Math/MathVista@testmini"]
    assert found(sets, choices=None, image=picture(3)) == ["AI4Math/MathVista@testmini"]


SHAPES = {
    "bench": {"question": TEXT, "image": Image(), "choices": List(TEXT)},
    "options": {"question": TEXT, "image": Image(), "options": List(TEXT)},
    "other": {"question": TEXT, "images": List(Image())},
    "MathVision": {"question": TEXT, "image": TEXT, "decoded_image": Image()},
    "MathVerse": {"query_wo": TEXT, "question_for_eval": TEXT, "image": Image()},
    "ChartQA": {"type": TEXT, "question": TEXT, "answer": TEXT, "image": Image()},
    "chartqa": {"query": TEXT, "label": List(TEXT), "image": Image()},
}


def local_set(folder, features, splits=("test",), question=QUESTION, image=NINE):
    image = image and {"bytes": image, "path": None}
    values = {"images": [image], "decoded_image": image, "label": ["1"], "choices": CHOICES, "options": CHOICES}
    for split in splits:
        row = {name: values.get(name, image if feature == Image() else question) for name, feature in features.items()}
        write_files(folder, features, [row], split, files=1)
    write_card(folder, {"default": {split: f"{split}-*" for split in splits}})
    return str(folder)


def test_a_folder_is_read_whatever_its_columns_are_called_and_so_is_one_of_files(tmp_path):
    for name, features in SHAPES.items():
        sets = read_evaluation_sets([local_set(tmp_path / name, features)])
        assert sets.with_image(picture(9, "BMP"), (28, 28)) == [name]
        assert found(sets, choices=None, image=picture(9, "BMP")) == [name]
    for name in ("bench", "options"):  # without pictures
        sets = read_evaluation_sets([local_set(tmp_path / "bare" / name, SHAPES[name], image=None)])
        assert (found(sets), found(sets, choices=["four", "five"])) == ([name], [])
    (tmp_path / "files").mkdir()  # `load_dataset("imagefolder")` streams a path, and no bytes
    (tmp_path / "files" / "1.png").write_bytes(picture(9))
    (tmp_path / "files" / "metadata.jsonl").write_text(json.dumps({"file_name": "1.png", "question": QUESTION}))
    assert read_evaluation_sets([str(tmp_path / "files")]).with_image(picture(9, "BMP"), (28, 28)) == ["files"]


def test_names_choose_configuration_and_split_and_hold_no_path_and_a_set_that_cannot_be_read_is_refused(tmp_path):
    folder = local_set(tmp_path / "bench", SHAPES["bench"], ("validation", "test"))
    assert read_evaluation_sets([folder]).names["bench"]["images"] == 1
    for asked, name in ((f"{folder}@test", "bench@test"), (f"{folder}:default@test", "bench:default@test")):
        assert list(read_evaluation_sets([asked]).names) == [name]
    problem = local_set(tmp_path / "problem", {"problem": TEXT, "image": Image()})
    for names, said in (
        ([f"{folder}@nonsense"], "nonsense"),
        ([folder, folder], "'bench' twice"),
        ([problem], r"problem has the columns {'problem': 'string', 'image': 'image'}"),
        ([local_set(tmp_path / "paths", {"question": TEXT, "image": TEXT})], "paths has the columns"),
        (["nobody/nothing"], "--evaluation_data nobody/nothing:"),
        (["a@b@c"], r"not of the form NAME\[:CONFIG\]\[@SPLIT\]"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            read_evaluation_sets(names)
