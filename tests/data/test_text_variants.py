"""`data.text_variants`: hints never hold the last step, and a paraphrase keeps every number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.data.text_variants import hints_of, lost_numbers, steps_of, tells

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


def test_hints_grow_and_leave_out_the_last_step():
    hints = hints_of("How many?", ["a", "b", "c", "d", "e"], 2)
    assert [hint.splitlines()[-1] for hint in hints] == ["2. b", "4. d"]
    assert all(hint.startswith("How many?\n") for hint in hints)


@given(st.lists(st.text("abc", min_size=1), max_size=9), st.integers(1, 12))
def test_each_hint_holds_more_steps_than_the_one_before(steps, levels):
    hints = hints_of("?", steps, levels)
    assert len(hints) == min(levels, max(len(steps) - 1, 0))
    lengths = [hint.count("\n") - 2 for hint in hints]
    assert lengths == sorted({*lengths})
    assert not lengths or lengths[-1] == len(steps) - 1


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
    ],
)
def test_a_hint_that_tells_the_answer_is_seen(hint, answer, told):
    assert tells(hint, answer) is told
