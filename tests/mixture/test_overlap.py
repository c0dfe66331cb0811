"""Evaluation sets in the mixture: what is taken for the same, what is not, and the columns of the sets."""

import json
from io import BytesIO

import pytest
from datasets import Features, Image, List, Value
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pictures
from PIL import ImageDraw

from scripts.mixture.overlap import SIMILAR, EvaluationSets, image_fingerprint, outline, read_evaluation_sets
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


def test_other_pixels_or_the_same_pixels_in_another_shape_are_another_image():
    sets = one_set(image=picture(5, size=(4, 6)))
    assert sets.with_image(picture(6, size=(4, 6)), (4, 6)) == []
    assert sets.with_image(picture(5, size=(6, 4)), (6, 4)) == []
    sets.sizes.add((6, 4))
    assert sets.with_image(picture(5, size=(6, 4)), (6, 4)) == []


def test_an_image_of_a_size_that_no_set_has_is_not_even_decoded():
    assert one_set(image=picture(5)).with_image(b"no image at all", (7, 7)) == []


@pytest.mark.parametrize(
    "question",
    [
        "how many bars are  taller than the GREEN one",
        "How many bars are taller than the green one ?!",
        "\uff28\uff4f\uff57 many bars are taller than the green one?",
    ],
)
def test_the_same_letters_and_digits_are_the_same_question(question):
    assert found(one_set(), question) == ["bench"]


def test_choices_and_instructions_of_an_evaluation_set_do_not_hide_its_question():
    sets = one_set(f"{FINAL}{QUESTION}\nChoices:\n(A) two\n(B) three", choices=None)
    assert found(sets) == ["bench"]


def test_a_sentence_that_is_asked_of_many_pictures_is_no_overlap():
    """As "Which of the following statements is true?" of ScienceQA: in training and in test, with the same choices."""
    sets = one_set(image=FIGURE)
    for choices in (CHOICES, ["four", "five"], None):
        assert found(sets, choices=choices, image=OTHER) == []
    assert found(one_set(image=FIGURE, choices=None), image=OTHER) == []


def test_a_question_without_a_picture_is_one_with_the_same_choices_in_any_order():
    assert found(one_set(), choices=["Three.", "two"]) == ["bench"]
    assert found(one_set(), choices=["four", "five"]) == found(one_set(), choices=None) == []


def test_a_similar_picture_makes_it_one_whatever_the_choices():
    sets = one_set(image=FIGURE)
    assert found(sets, choices=None, image=FIGURE) == ["bench"]
    smaller = drawing([(20, 20), (180, 40), (60, 170)], "JPEG", 120, quality=70)
    assert found(sets, choices=["four", "five"], image=smaller) == ["bench"]
    assert sets.with_image(smaller, (200, 200)) == []


def test_a_damaged_picture_is_similar_to_none():
    assert found(one_set(image=FIGURE), choices=None, image=FIGURE[:60]) == []


def test_outlines_of_copies_are_near_and_those_of_others_far():
    def distance(one, other):
        return (outline(one) ^ outline(other)).bit_count()

    for size, quality in ((400, 95), (200, 60), (100, 60)):
        assert distance(FIGURE, drawing([(20, 20), (180, 40), (60, 170)], "JPEG", size, quality=quality)) <= SIMILAR
    assert distance(FIGURE, OTHER) > 2 * SIMILAR


def test_another_question_is_none_of_the_sets():
    assert found(one_set(), "How many bars are taller than the red one?") == []


def test_a_short_question_says_nothing():
    assert found(one_set("What is x?"), "What is x?") == []
    assert found(one_set("What is x?", min_words=3), "What is x?") == ["bench"]
    assert found(one_set("one two three four five six"), "one two three four five six") == ["bench"]
    assert found(one_set("one two three four five"), "one two three four five") == []


def test_a_damaged_image_of_an_evaluation_set_is_counted():
    sets = one_set(image=picture(5)[:30])
    assert sets.names == {"bench": {"images": 0, "questions": 1, "unreadable": 1}}


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
    return folder


@pytest.mark.parametrize("name", list(SHAPES))
def test_a_folder_is_read_whatever_its_columns_of_images_are_called(tmp_path, name):
    folder = local_set(tmp_path / name, SHAPES[name])
    sets = read_evaluation_sets([str(folder)])
    assert sets.with_image(picture(9, "BMP"), (28, 28)) == [name]
    assert found(sets, choices=None, image=picture(9, "BMP")) == [name]


@pytest.mark.parametrize("name", ["bench", "options"])
def test_the_choices_of_a_row_without_a_picture_are_read(tmp_path, name):
    sets = read_evaluation_sets([str(local_set(tmp_path / name, SHAPES[name], image=None))])
    assert found(sets) == [name]
    assert found(sets, choices=["four", "five"]) == []


def test_without_a_split_all_are_read_and_with_one_that_one(tmp_path):
    folder = local_set(tmp_path / "bench", SHAPES["bench"], ("validation", "test"))
    assert read_evaluation_sets([str(folder)]).names["bench"]["images"] == 1
    with pytest.raises(ConfigurationError, match="nonsense"):
        read_evaluation_sets([f"{folder}@nonsense"])
    assert list(read_evaluation_sets([f"{folder}@test"]).names) == ["bench@test"]


def test_names_in_the_report_have_no_path_of_this_machine(tmp_path):
    folder = local_set(tmp_path / "bench", SHAPES["bench"])
    assert list(read_evaluation_sets([f"{folder}:default@test"]).names) == ["bench:default@test"]


def test_a_set_without_the_columns_is_refused_by_those_that_it_has(tmp_path):
    folder = local_set(tmp_path / "bench", {"problem": TEXT, "image": Image()})
    with pytest.raises(ConfigurationError, match=r"bench has the columns {'problem': 'string', 'image': 'image'}"):
        read_evaluation_sets([str(folder)])
    folder = local_set(tmp_path / "paths", {"question": TEXT, "image": TEXT})
    with pytest.raises(ConfigurationError, match="paths has the columns"):
        read_evaluation_sets([str(folder)])


def test_a_set_that_cannot_be_opened_is_refused_by_its_name(tmp_path):
    with pytest.raises(ConfigurationError, match="--evaluation_data nobody/nothing:"):
        read_evaluation_sets(["nobody/nothing"])
    with pytest.raises(ConfigurationError, match=r"not of the form NAME\[:CONFIG\]\[@SPLIT\]"):
        read_evaluation_sets(["a@b@c"])


def test_one_set_named_twice_is_refused(tmp_path):
    folder = local_set(tmp_path / "bench", SHAPES["bench"])
    with pytest.raises(ConfigurationError, match="'bench' twice"):
        read_evaluation_sets([str(folder), str(folder)])


def test_images_in_a_folder_of_files_are_read_from_the_disk(tmp_path):
    """As `load_dataset("imagefolder")` streams them: a path, and no bytes."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "1.png").write_bytes(picture(9))
    (tmp_path / "bench" / "metadata.jsonl").write_text(json.dumps({"file_name": "1.png", "question": QUESTION}))
    assert read_evaluation_sets([str(tmp_path / "bench")]).with_image(picture(9, "BMP"), (28, 28)) == ["bench"]


def test_schemas_of_the_stand_ins_are_features():
    assert all(Features(shape) for shape in SHAPES.values())
