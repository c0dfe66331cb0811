"""`cli.variants.kinds`: which kinds there are, and which rows they are safe for."""

import pytest

from tests.support.refusals import refused
from trl_vade.cli.variants.kinds import family_of, read_kinds, read_safe_for, why_unsafe
from trl_vade.errors import ConfigurationError


def test_kinds_are_read_once_each_in_their_order():
    assert read_kinds(["text", "hint-2", "low-resolution-3", "text"]) == ["text", "hint-2", "low-resolution-3"]
    assert [family_of(kind) for kind in ("text", "hint-2", "low-resolution-3")] == ["text", "hint", "low-resolution"]


@pytest.mark.parametrize(
    "name", ["hint", "hint-0", "hint-10", "rotation", "rotation-4", "text-1", "jpeg-1", "original"]
)
def test_an_unknown_kind_is_refused_with_those_that_are(name):
    with refused(ConfigurationError, ["--kinds", name], ["text", "drawn", "hint-1", "salt-pepper"]):
        read_kinds(["text", name])


def test_no_kind_is_refused():
    with refused(ConfigurationError, ["--kinds"], ["text"]):
        read_kinds([])


@pytest.mark.parametrize(
    "texts",
    [
        "Which shape is on the left?",
        "What time does the clock show?",
        "Is the line vertical?",
        "What colour is the top right shape?",
        "Which state is farthest north?",
        "Where is it? above the line",
    ],
)
def test_a_question_about_orientation_gets_no_rotation(texts):
    assert why_unsafe("rotation-1", None, texts, {}) == "the orientation matters"
    assert why_unsafe("gaussian-1", None, texts, {}) is None
    assert why_unsafe("rotation-1", "maps", texts, {"rotation": {"all"}}) is None


@pytest.mark.parametrize(
    "texts", ["How many shapes are there?", "Find the area of the right triangle ABC.", "Choose the right answer."]
)
def test_another_question_gets_one(texts):
    assert why_unsafe("rotation-1", None, texts, {}) is None


@pytest.mark.parametrize("kind", ["blur-1", "low-resolution-2"])
def test_small_text_in_a_picture_is_not_made_unreadable(kind):
    assert why_unsafe(kind, "chartqa", "How much?", {}) == "text in the picture"
    assert why_unsafe(kind, "count", "How much?", {}) is None
    assert why_unsafe("gaussian-3", "chartqa", "How much?", {}) is None


def test_tasks_that_are_told_are_the_safe_ones():
    safe = read_safe_for(["rotation=count,chart", "blur=all"])
    assert why_unsafe("rotation-2", "count", "left", safe) is None
    assert why_unsafe("rotation-2", "maps", "right", safe) == "not safe for the task"
    assert why_unsafe("rotation-2", None, "right", safe) == "not safe for the task"
    assert why_unsafe("blur-2", None, "", safe) is None


@pytest.mark.parametrize("text", ["rotation", "rotation=", "rotation-1=count", "=count", "twist=all"])
def test_tasks_of_no_kind_are_refused(text):
    with refused(ConfigurationError, ["--safe_for", text], ["KIND=all", "low-resolution"]):
        read_safe_for([text])
