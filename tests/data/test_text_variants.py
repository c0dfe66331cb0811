"""`data.text_variants`: hints never hold the last step, and a paraphrase keeps every number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.data.text_variants import (
    hint_sizes,
    lost_numbers,
    no_paraphrase,
    no_text,
    said,
    steps_of,
    tells,
    with_hint,
)

GSM8K = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nShe sold 48+24 = <<48+24=72>>72 clips.\n#### 72"


@pytest.mark.parametrize(
    ("solution", "steps"),
    [
        (GSM8K, ["Natalia sold 48/2 = 24 clips in May.", "She sold 48+24 = 72 clips."]),
        ("1. Draw a line.\n2) Measure it.\n- Done.", ["Draw a line.", "Measure it.", "Done."]),
        ("Step 1: AB is 3.5 cm. Then BC is 4 cm.", ["AB is 3.5 cm.", "Then BC is 4 cm."]),
        ("", []),
        ("\n---\n", []),
    ],
)
def test_a_solution_is_divided_into_its_steps(solution, steps):
    assert steps_of(solution) == steps


def test_a_hint_stands_after_the_question():
    lines = with_hint("How many?", ["Count the red ones.", "Add the blue ones."]).splitlines()
    assert lines[0] == "How many?"
    assert lines[-2:] == ["1. Count the red ones.", "2. Add the blue ones."]


@given(st.integers(0, 12), st.integers(1, 12))
def test_hints_grow_up_to_all_steps_but_the_last(steps, levels):
    sizes = hint_sizes(steps, levels)
    assert len(sizes) == min(levels, max(steps - 1, 0))
    assert sizes == sorted({*sizes})
    assert not sizes or (sizes[0] >= 1 and sizes[-1] == steps - 1)


@pytest.mark.parametrize(
    ("question", "paraphrase", "lost"),
    [
        ("A side is 3.5 and one 12.", "One side measures 12, the other 3.5.", []),
        ("3 of 3 apples", "three of 3 apples", ["3"]),
        ("1,000 cars", "1000 cars", ["1,000"]),
        ("no number", "none", []),
    ],
)
def test_numbers_that_a_paraphrase_lost_are_named(question, paraphrase, lost):
    assert lost_numbers(question, paraphrase) == lost


@pytest.mark.parametrize(
    ("hint", "answer", "told"),
    [
        ("So x = 12.", "12", True),
        ("So x = 12.5 now", "12", False),
        ("It is 112", "12", False),
        ("The angle is B.", "b", True),
        ("Because of this", "B", False),
        ("Anything", " ", False),
        ("It costs $3+4", "$3", True),
        ("A triangle has three sides.", "A", False),
        ("So the answer is A because of it", "A", True),
        ("Hence (A).", "A", True),
        ("Take a ruler and measure AB.", "A", False),
        ("Point B lies on a line.", "b", True),
        ("a bar at b", "B", False),
    ],
)
def test_a_hint_that_tells_the_answer_is_seen(hint, answer, told):
    assert tells(hint, answer) is told


ASKED = "A farmer sells 3.5 kg of apples and 12 pears. How many pears does he sell?"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("How many pears are sold by a farmer who sells 12 pears and 3.5 kg of apples?", None),
        ("", "empty"),
        ("How many pears are sold by a farmer who sells 12 pears and some apples?", "lost a number"),
        ("Tell the number of pears that a farmer sells with 3.5 kg of apples and 12 pears.", "no question"),
        ("Is 12 the sum of 3.5 and some other thing?", "about something else"),
        ("<html><body>3.5 kg apples and 12 pears, how many pears?</body></html>", "a web page"),
        ("I'm sorry, but I can't help with 3.5 kg of apples and 12 pears?", "the LLM refuses"),
        ("As an AI I do not say how many pears 12 and 3.5 kg of apples are?", "the LLM refuses"),
        ("How many pears? " * 15 + "3.5 12", "too long"),
        ("How many pears and apples " * 10**5, "too long"),
    ],
)
def test_a_paraphrase_that_is_none_is_named(reply, fault):
    assert no_paraphrase(ASKED, reply) == fault


@pytest.mark.parametrize(
    ("question", "paraphrase"),
    [
        ("What colour is the shape?", "Which colour does the shape have?"),
        ("Find x.", "Determine the value of x."),
        ("How many shapes are there?", "What is the number of shapes in the picture?"),
        ("What is the sum of the two bars?", "What do the two bars add up to?"),
        ("I am sorry for him: what is 2 + 2?", "What is the sum of 2 and 2, I am sorry to ask?"),
    ],
)
def test_a_paraphrase_of_a_short_question_passes(question, paraphrase):
    assert no_paraphrase(question, paraphrase) is None


def test_thoughts_quotes_and_fences_are_no_part_of_a_reply():
    assert said('<think>It asks for x.\nHm.</think>\n\n"What is x?"\n') == "What is x?"
    assert said("half of a pair: \ud83d").encode() == b"half of a pair: ?"
    assert said("```\n1. Count.\nAnswer: 3\n```") == "1. Count.\nAnswer: 3"


def test_a_solution_may_be_longer_than_its_question_but_not_without_end():
    assert no_text("1. Count them. " * 50) is None
    assert no_text("1. Count them. " * 5000) == "too long"
