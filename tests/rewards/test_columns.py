"""Columns that the rewards would misread are refused before the load, and the line of the message mends them."""

from functools import partial

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from tests.support.marks import slow
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.rewards.functions import accuracy_reward, format_reward, refuse_rows, relaxed_accuracy_reward
from trl_vade.rewards.verifiers import judge

PETS, LETTERS, TEXT = ClassLabel(names=["cat", "dog"]), ClassLabel(names=[*"ABCD"]), Value("string")
FOUR = ["oak", "elm", "ash", "fir"]
ARC = {"text": FOUR, "label": ["1", "2", "3", "4"]}
VQA = [{"answer": "net", "answer_confidence": "yes"}, {"answer": "a net", "answer_confidence": "maybe"}]
SQUAD = {"text": ["Denver", "Denver Broncos"], "answer_start": [177, 177]}
LABELLED, NUMBER = [{"label": "A", "text": one} for one in FOUR], ClassLabel(names=["number"])
JSON, PYTHON = '["oak", "\\u00e9lm", null]', "['oak', 'elm']"
MISREAD = {  # columns, features that are not inferred, right and wrong answers, words of the message
    "classes": ({"answer": [1, 0, None, -1]}, {"answer": PETS}, ["dog", "cat"], ["1", "0"], "ClassLabel"),
    "in lists": ({"answer": [[1], [0], None]}, {"answer": List(PETS)}, ["dog", "cat"], ["1", "0"], "numbers"),
    "classes as choices": ({"answer": [1], "choices": [["dog", "cat"]]}, {"answer": PETS}, ["A"], ["B"], "numbers"),
    "letters alone": ({"answer": [1]}, {"answer": LETTERS}, ["B"], ["1"], "numbers"),
    "letters and numbers": ({"answer": [1], "choices": [[1, 7]]}, {"answer": LETTERS}, ["7"], ["1"], "numbers"),
    "others": ({"answer": ["7", "b"], "answer_type": ["number", "list"]}, {}, ["7", "b"], ["8", "c"], "row 1"),
    "types as classes": ({"answer": ["7"], "answer_type": [0]}, {"answer_type": NUMBER}, ["7"], ["8"], "numbers"),
    "numbers": ({"answer": ["7", "8"], "answer_type": [None, 1.5]}, {}, ["7", "8"], ["8", "7"], "row 1 has 1.5"),
    "types as lists": ({"answer": ["7"], "answer_type": [["number"]]}, {}, ["7"], ["8"], "row 0"),
    "types as fields": ({"answer": ["7"], "answer_type": [{"a": "number"}]}, {}, ["7"], ["8"], "row 0"),
    "choices as fields": ({"answer": ["B", "2"], "choices": [ARC] * 2}, {}, ["elm", "B"], ["oak", "C"], "fields"),
    "choices by letters": ({"answer": ["B"], "choices": [{"A": "oak", "B": "elm"}]}, {}, ["elm"], ["oak"], "fields"),
    "choices with fields": ({"answer": ["B"], "choices": [LABELLED]}, {}, ["elm"], ["B. oak"], "fields"),
    "choices as JSON": ({"answer": ["B", None], "choices": [JSON, ""]}, {}, ["élm"], ["oak"], "import json"),
    "choices as Python": ({"answer": ["B"], "choices": [PYTHON]}, {}, ["elm"], ["oak"], "import ast"),
    "choices without a mark": ({"answer": ["B"], "choices": ["oak elm"]}, {}, ["B"], ["A"], "'oak elm'"),
    "a number of choices": ({"answer": ["B"], "choices": [4]}, {}, ["B"], ["A"], "int64"),
    "classes there": ({"answer": ["B"], "choices": [[0, 1]]}, {"choices": List(PETS)}, ["dog"], ["cat"], "numbers"),
    "answers with fields": ({"answer": [VQA, None]}, {}, ["net"], ["yes"], "fields"),
    "fields of answers": ({"answer": [SQUAD, None]}, {}, ["Denver"], ["177"], "fields"),
    "places": ({"answer": ["2", "3"], "choices": [FOUR] * 2}, {}, ["ash", "D"], ["2", "C"], "row 0"),
    "places from 1": ({"answer": ["2", "4", "C"], "choices": [FOUR] * 3}, {}, ["B", "fir"], ["C", "ash"], "from 1"),
}  # fmt: skip


@pytest.mark.parametrize("form", [None, slow("numpy")])
@pytest.mark.parametrize("name", MISREAD)
def test_the_line_in_the_message_makes_the_column_one_that_is_read_right(name, form):
    columns, features, right, wrong, word = MISREAD[name]
    rows = Dataset.from_dict({"prompt": ["?"] * len(columns["answer"]), **columns})
    seen = {"rows": rows.cast(Features({**rows.features, **features})).with_format(form)}
    for reward in (accuracy_reward, [format_reward, partial(relaxed_accuracy_reward)]):
        with refused(ConfigurationError, [word, str(len(rows))], ["rows = rows."]):
            refuse_rows(reward, None, DatasetDict(of=seen["rows"]))
    refuse_rows(format_reward, seen["rows"])
    for _ in range(3):
        try:
            refuse_rows(accuracy_reward, seen["rows"])
        except ConfigurationError as error:
            exec(str(error).splitlines()[-1], seen)
    refuse_rows(accuracy_reward, seen["rows"])
    mended = seen["rows"].select(range(len(right))).to_dict()
    assert [accuracy_reward(said, **mended) for said in (right, wrong)] == [[1.0] * len(right), [0.0] * len(right)]


def test_what_is_read_right_is_not_refused_and_a_transform_and_a_stream_are_looked_at_later():
    classes = {"answer": [1], "choices": [FOUR]}
    rows = Dataset.from_dict(classes, features=Features({"answer": LETTERS, "choices": List(TEXT)}))
    refuse_rows(accuracy_reward, rows)
    assert [accuracy_reward([said], **rows[:]) for said in "BA"] == [[1.0], [0.0]]
    for answer, choices in (("2", ["1", "2"]), ("2", [1, 2]), ("2", ["two", "six"]), ("9", FOUR), ("B", None)):
        refuse_rows(accuracy_reward, Dataset.from_dict({"answer": [answer], "choices": [choices]}))
    numbers = {"answer": ["2", "2", ""], "choices": [FOUR, None, FOUR], "answer_type": ["number", None, "text"]}
    refuse_rows(accuracy_reward, Dataset.from_dict(numbers), Dataset.from_dict({"answer": [1], "choices": [FOUR]}))
    wrong = Dataset.from_dict({"answer": [VQA], "choices": ["oak"]})
    refuse_rows(accuracy_reward, wrong.with_transform(dict), wrong.to_iterable_dataset(), [{"answer": VQA}])


def test_no_type_is_inferred_whatever_stands_for_it():
    for none in ("", float("nan"), np.nan, None):
        refuse_rows(accuracy_reward, Dataset.from_dict({"answer": ["7"], "answer_type": [none]}))
        assert [judge(said, "7", none) for said in ("seven", "8")] == [1.0, 0.0]


def test_choices_keep_their_letters_where_one_has_no_text_and_where_the_letters_are_in_the_texts():
    assert [judge(said, "C", None, ["x", None, "y"]) for said in ("C", "y", "B", "x")] == [1.0, 1.0, 0.0, 0.0]
    assert [judge(said, 2, None, [None, "x", "y"]) for said in ("C", "y", "B")] == [1.0, 1.0, 0.0]
    for form in ("{}. {}", "({}) {}", "{}) {}", "{}: {}", "[{}] {}"):
        choices = [form.format(*each) for each in zip("AB", ["grass", "sky"], strict=True)]
        for answer in ("A", "grass", choices[0], 0):
            for given in (choices, [*choices, None, None]):
                rights = [judge(said, answer, None, given) for said in ("A", "grass", choices[0], "A. grass", "(A)")]
                wrongs = [judge(said, answer, None, given) for said in ("B", "sky", choices[1], "A. sky", "B. grass")]
                assert (rights, wrongs) == ([1.0] * 5, [0.0] * 5), (form, answer)
    assert judge("A. 5", "A", None, ["A. 5", "B. 5"]) == judge("b", "B", None, ["B. b", "A. a"]) == 1.0
