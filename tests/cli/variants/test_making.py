"""`cli.variants.making`: each variant is verified, and a refusal has its reason."""

import io

import pytest
from PIL import Image

from tests.support.pictures import file_of, gradient, turned
from trl_vade.cli.variants.endpoint import Endpoint
from trl_vade.cli.variants.making import Columns, Maker
from trl_vade.cli.variants.replies import Replies

COLUMNS = Columns("prompt", "images", "answer", "solution", "task")
SOLUTION = "Each row has 4 apples.\nThere are 3 rows.\nTogether this makes 4 * 3 apples.\n#### 12"
STEPS = "1. Count the apples of a row, 4.\n2. Count the 3 rows.\n3. Multiply both.\nAnswer: 12"


def row_of(**changes):
    prompt = [{"role": "user", "content": "How many apples are in 3 rows?"}]
    row = {"id": "r1", "prompt": prompt, "images": [file_of(gradient())], "answer": "12", "solution": SOLUTION}
    return row | {"task": "apples"} | changes


@pytest.fixture
def replies(tmp_path):
    return Replies(tmp_path / "replies.jsonl")


def maker_of(*kinds, endpoint=None, **settings):
    return Maker(list(kinds), settings.pop("columns", COLUMNS), endpoint=endpoint, **settings)


def writes(replies, row, kind, text, columns=COLUMNS, **settings):
    """The variant of a kind that a reply makes."""
    maker = maker_of(kind, endpoint=Endpoint("http://127.0.0.1:9/v1", "a-model"), columns=columns, **settings)
    [request] = maker.requests(row)
    replies.keep(request.key, text)
    return dict(maker.variants(row, replies))[kind]


def text_of(made):
    return made["prompt"][-1]["content"]


def decoded(file):
    return Image.open(io.BytesIO(file["bytes"]))


# ------------------------------------------------------------------------------------------------------------ pictures


def test_all_pictures_of_a_row_are_changed_each_with_numbers_of_its_own(replies):
    row = row_of(images=[file_of(gradient()), file_of(gradient(), "JPEG"), file_of(gradient())])
    made = dict(maker_of("gaussian-1").variants(row, replies))["gaussian-1"]
    assert [decoded(file).format for file in made["images"]] == ["PNG"] * 3
    assert len({file["bytes"] for file in made["images"]}) == 3
    assert "prompt" not in made
    assert made["variant_source"] == "image"


def test_one_picture_in_its_own_column_stays_one(replies):
    columns = Columns("prompt", "image", "answer", None, None)
    made = dict(maker_of("blur-1", columns=columns).variants({**row_of(), "image": file_of(gradient())}, replies))
    assert decoded(made["blur-1"]["image"]).size == gradient().size


def test_a_picture_that_lies_on_its_side_is_turned_as_the_trainer_sees_it(replies):
    made = dict(maker_of("gaussian-1").variants(row_of(images=[turned()]), replies))["gaussian-1"]
    assert decoded(made["images"][0]).size == gradient().size[::-1]


def test_a_drawn_question_leaves_the_prompt_but_for_its_instruction(replies):
    prompt = "How many apples are in 3 rows?\nChoices:\nA. 12\nB. 3\n\nBox it."
    row = row_of(prompt=prompt)
    made = dict(maker_of("drawn", instruction="Box").variants(row, replies))["drawn"]
    assert "apples" not in made["prompt"]
    assert made["prompt"].endswith("\n\nBox it.")
    assert decoded(made["images"][0]).height > gradient().height


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("gaussian-1", {"images": []}, "no picture"),
        ("drawn", {"images": None}, "no picture"),
        ("gaussian-1", {"images": [{"bytes": b"\x89PNG no picture", "path": None}]}, "a damaged picture"),
        ("rotation-1", {"images": [file_of(Image.new("RGB", (20, 20), "red"))]}, "equal to the original"),
        ("rotation-1", {"prompt": "What is on the left?"}, "the orientation matters"),
        ("blur-1", {"task": "chartqa"}, "text in the picture"),
        ("drawn", {"prompt": "\u9762\u79ef?"}, "the font lacks a sign"),
        ("gaussian-1", {"prompt": [{"role": "system", "content": "?"}]}, "no single question text"),
    ],
)
def test_a_row_that_a_kind_does_not_fit_has_none(replies, kind, changes, reason):
    assert dict(maker_of(kind).variants(row_of(**changes), replies)) == {kind: reason}


# --------------------------------------------------------------------------------------------------------------- hints


def test_hints_are_the_first_steps_of_the_rows_own_solution_without_an_llm(replies):
    maker = maker_of("hint-1", "hint-2", endpoint=Endpoint("http://127.0.0.1:9/v1", "a-model"))
    assert list(maker.requests(row_of())) == []
    made = dict(maker.variants(row_of(), replies))
    assert text_of(made["hint-1"]).splitlines()[-1] == "1. Each row has 4 apples."
    assert text_of(made["hint-2"]).splitlines()[-1] == "2. There are 3 rows."
    assert made["hint-1"]["variant_source"] == "solution"
    assert all("images" not in one for one in made.values())


def test_a_hint_stands_between_the_choices_and_the_instruction(replies):
    row = row_of(prompt="How many apples?\nChoices:\nA. 12\nB. 3\n\nBox it.", answer="A", choices=["12", "3"])
    made = dict(maker_of("hint-1", instruction="Box").variants(row, replies))["hint-1"]
    places = [made["prompt"].index(part) for part in ("B. 3", "Each row has 4 apples.", "Box it.")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("solution", "changes"),
    [
        ("It is 12.\nSo 12.\n#### 12", {}),
        ("The sum is 12.0 of course.\nDone.", {}),
        ("There are 1,200 of them.\nDone.", {"answer": "1200"}),
        ("So x equals 24/2\nDone.", {"answer": "12"}),
        ("The answer is \\boxed{\\frac{1}{2}}.\nDone.", {"answer": "0.5", "answer_type": "expression"}),
        ("It must be (B).\nDone.", {"answer": "B", "choices": ["3", "12"]}),
        ("It has 12 apples.\nDone.", {"answer": "B", "choices": ["3", "12"]}),
        ("The colour is Red.\nDone.", {"answer": "red"}),
        ("About 102 of them.\nDone.", {"answer": "100", "source": "ChartQA"}),
    ],
)
def test_a_hint_that_tells_the_answer_is_refused(replies, solution, changes):
    assert dict(maker_of("hint-1").variants(row_of(solution=solution, **changes), replies)) == {
        "hint-1": "tells the answer"
    }


def test_a_letter_of_another_word_is_no_choice(replies):
    row = row_of(solution="A farmer has them.\nDone.", answer="A", choices=["12", None])
    assert isinstance(dict(maker_of("hint-1").variants(row, replies))["hint-1"], dict)


def test_a_solution_that_tells_the_answer_late_keeps_its_early_hints(replies):
    row = row_of(solution="Look at it.\nCount a row.\nCount the rows.\nIt is 12.\nDone.")
    made = dict(maker_of("hint-1", "hint-2", "hint-4").variants(row, replies))
    assert isinstance(made["hint-1"], dict)
    assert isinstance(made["hint-2"], dict)
    assert made["hint-4"] == "tells the answer"


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("hint-3", {"solution": "Look.\nCount.\nDone."}, "too few steps"),
        ("hint-1", {"solution": "Twelve."}, "no solution"),
        ("hint-1", {"solution": None}, "no solution"),
        ("hint-1", {"answer": None}, "no answer to verify with"),
        ("hint-1", {"answer": ["4", "12"]}, "no answer to verify with"),
        ("hint-2", {"answer": ["3"]}, "tells the answer"),
        ("hint-2", {"answer": 3}, "tells the answer"),
    ],
)
def test_a_row_without_steps_or_answer_has_no_hint(replies, kind, changes, reason):
    assert dict(maker_of(kind).variants(row_of(**changes), replies)) == {kind: reason}


def test_an_llm_gets_question_answer_and_pictures_and_its_steps_are_the_hints(replies):
    row = row_of(solution=None)
    maker = maker_of("hint-1", "hint-2", endpoint=Endpoint("http://127.0.0.1:9/v1", "a-model"))
    [request] = maker.requests(row)
    assert "How many apples are in 3 rows?" in request.prompt
    assert "12" in request.prompt
    assert [url.partition(",")[0] for url in request.pictures()] == ["data:image/jpeg;base64"]
    replies.keep(request.key, f"<think>12!</think>{STEPS}")
    made = dict(maker.variants(row, replies))
    assert text_of(made["hint-2"]).splitlines()[-1] == "3. Multiply both."
    assert (made["hint-2"]["variant_source"], made["hint-2"]["variant_model"]) == ("endpoint", "a-model")
    assert made["hint-2"]["variant_request"] == request.key


def test_a_text_model_gets_no_pictures_and_a_damaged_one_is_the_rows_fault(replies):
    endpoint = Endpoint("http://127.0.0.1:9/v1", "a-model")
    [request] = maker_of("hint-1", endpoint=endpoint, text_only=True).requests(row_of(solution=None))
    assert request.pictures() == []
    damaged = row_of(solution=None, images=[{"bytes": b"no", "path": None}])
    maker = maker_of("hint-1", endpoint=endpoint)
    assert [request.pictures() for request in maker.requests(damaged)] == [None]
    assert dict(maker.variants(damaged, replies)) == {"hint-1": "a damaged picture"}
    assert dict(maker.variants(row_of(solution=None), replies)) == {"hint-1": "no reply"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("I'm sorry, I can't.", "the LLM refuses"),
        ("<html>12</html>", "a web page"),
        ("Perhaps a triangle, perhaps not.", "the steps do not reach the answer"),
        (STEPS.replace("Answer: 12", "Answer: 13"), "the steps do not reach the answer"),
        (STEPS.replace("Multiply both", "It is 12"), "tells the answer"),
        ("Answer: 12", "too few steps"),
        (STEPS * 999, "too long"),
    ],
)
def test_nonsense_of_an_llm_makes_no_hint(replies, text, reason):
    assert writes(replies, row_of(solution=None), "hint-3", text) == reason


# --------------------------------------------------------------------------------------------------------- paraphrases


def test_a_paraphrase_replaces_the_question_alone(replies):
    row = row_of(prompt="How many apples are in 3 rows?\nChoices:\nA. 12\nB. 3\n\nBox it.")
    made = writes(replies, row, "text", '"What is the number of apples in the 3 rows?"', instruction="Box")
    assert made["prompt"] == "What is the number of apples in the 3 rows?\nChoices:\nA. 12\nB. 3\n\nBox it."
    assert made["variant_model"] == "a-model"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("How many apples are in some rows?", "lost a number"),
        ("How many apples are\nin 3 rows?", "equal to the original"),
        ("How many apples are in 3 rows? It is 12, is it not?", "tells the answer"),
        ("Which of the 3 triangles is it?", "about something else"),
        ("Sorry, I cannot help with 3 rows?", "the LLM refuses"),
        ("\ud83d", "lost a number"),
    ],
)
def test_a_paraphrase_that_changes_the_question_is_refused(replies, text, reason):
    assert writes(replies, row_of(), "text", text) == reason


def test_the_answer_is_read_from_a_column_with_a_whole_solution(replies):
    columns = Columns("prompt", None, "solution", "solution", None)
    made = dict(maker_of("hint-1", columns=columns).variants(row_of(), replies))["hint-1"]
    assert text_of(made).endswith("1. Each row has 4 apples.\n2. There are 3 rows.")
    row = row_of(solution="It is 12, clearly.\nThus \\boxed{12}.")
    assert dict(maker_of("hint-1", columns=columns).variants(row, replies)) == {"hint-1": "tells the answer"}
