"""Which choice an answer names, by its letter, its text or both; two are none."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.answers import find_answer
from trl_vade.rewards.choices import chosen
from trl_vade.rewards.functions import accuracy_reward
from trl_vade.rewards.verifiers import judge

FOOD = ["plankton", "kelp", "sea urchin", "bat star"]
ROOTS = ["6", r"6 \sqrt { 2 }", r"6 \sqrt { 3 }", r"\frac{5 \pi}{2}"]
BRACKETED = ["(c)", "(d)", "(a)", "(b)", "(e)"]


def named(answer, choices=FOOD):
    """The letter that is named in a tag, or "" for none."""
    index = chosen(find_answer(f"<answer>{answer}</answer>"), choices)
    return "" if index is None else chr(ord("A") + index)


NAMING_C = [
    *("C (sea urchin)", "C - sea urchin", "C \u2013 sea urchin", "Option C: sea urchin", "Option C. sea urchin"),
    *("**C.** sea urchin", "**C**. sea urchin", "Answer: **C. sea urchin**", "C\nsea urchin", "sea urchin (C)"),
    *("*C*", r"\text{C}: \text{sea urchin}", "C, sea urchin", "the answer is C (sea urchin).", "Choice C"),
    *("(C) is correct.", "C is the correct answer.", "C. sea urchin is the correct answer.", "I choose C."),
    *("The answer should be C.", "It is a sea urchin.", "The sea urchin is eaten.", "So the answer is C: sea urchin"),
    *("C. a kind of animal", "So option C (sea urchin) is the best answer."),  # no other choice is named
    # What is stated decides over its reasons.
    *("C, because A is not in the water.", "C since kelp is a plant", "C as kelp is a plant", "sea urchin, not kelp"),
    *("The answer is C (sea urchin), as it eats kelp and not plankton.", "The answer is not A; it is C."),
    *("Kelp is eaten, so the answer is C. sea urchin", "No, B is wrong; the answer is C"),
    *("It can't be A, so it is C.", "I first thought A, but the answer is C.", "The answer is letter C."),
    *("The answer is A. Wait, the arrow ends there. The answer is C.", "答案是 C", "答案\uff1aC\uff0c因为它吃海带。"),
]
NAMING_NONE = [
    *("B (sea urchin)", "B. sea urchin", "sea urchin (B)", "B or C", "B, C", "B. or maybe C", "B. (or C, or D)"),
    *("B. wrong, it is C", "not B", "kelp or plankton", "kelp and plankton", "B is wrong", "anything but B"),
    *("B? C?", "B?", "A. plankton\nB. kelp\nC. sea urchin\nD. bat star", "Either B or D is correct.", "A|B|C|D"),
    *("A = B", "A: is B", "A) is B", "A := B", "B. The answer is A", "E", "Option A or option B", "B and not C"),
    # A reason makes no answer of two letters or a doubt.
    *("B and D, because both live there", "B or D, since both live there", "The answer is B. The answer is D."),
    *("I do not think the answer is B.", "If so, the answer is B.", "I doubt the answer is B", "B, or maybe D, since"),
    *("The answer is B because it is green. No wait, it is D.", "It is close to the kelp.", "It is south of kelp."),
    *("答案不是 B", "答案是 A 或 B", "The answer is not B, because it is a plant."),
]
NAMING_NONE_WITHOUT_CHOICES = [
    *("B. The answer is A", "A: is B", "A) is B", "A := B", "B. or maybe C", "B. (or C, or D)", "A or B", "A, B"),
    *("B. wrong, it is C", "A and B", "A/B", "AB", "B?", "not B", "A = B", "A B", "A. 5\nB. 12", "Bob", "a lot"),
    *("A = 45", "B = C", "c = 5"),
]


def test_letter_and_text_may_stand_together_but_two_choices_and_a_doubt_name_none():
    assert [written for written in NAMING_C if named(written) != "C"] == []
    assert [written for written in NAMING_NONE if named(written)] == []
    forms = [form for one in NAMING_NONE_WITHOUT_CHOICES for form in (one, f"<answer>{one}</answer>")]
    assert [one for one in forms if any(judge(one, letter, "choice") for letter in "ABC")] == []
    for written in ("B", "B. 12", "B) 12", "Option B", "B: 12", "B (12)", "The answer is (B) 12."):
        verdicts = [judge(f"<answer>{written}</answer>", reference) for reference in ("B", "A", "B) 12")]
        assert verdicts == [1.0, 0.0, 1.0], written


def test_a_choice_that_is_a_formula_may_be_written_anew_or_in_decimals_that_round_correctly():
    right = (r"B. $6\sqrt{2}$", "6\u221a2", r"6\sqrt{2}", r"x = \sqrt{72}", "B (6\u221a2)", "8.49", "x ≈ 8.485")
    assert [written for written in right if named(written, ROOTS) != "B"] == []
    wrong = (r"6\sqrt{5}", r"C. 6\sqrt{2}", "8.5", "8.48", "8")
    assert [written for written in wrong if named(written, ROOTS)] == []
    assert named(r"2.5\pi", ROOTS) == "D"


def test_an_integer_beside_choices_that_are_texts_is_the_place_of_the_right_one():
    cases = [(1, "B", 1.0), (1, "A", 0.0), (1, "2", 1.0), (1, "1", 0.0), (0, "A", 1.0), (np.int64(2), "C", 1.0)]
    cases += [("1", "A", 1.0), ("1", "B", 0.0), (3, "C", None), (-1, "C", None)]
    wrong = [case for case in cases if judge(f"<answer>{case[1]}</answer>", case[0], None, ["1", "2", "3"]) != case[2]]
    assert wrong == []
    words = {"answer": [1, 1, 1], "choices": [["kelp", "plankton"]] * 3}
    assert accuracy_reward(["B", "plankton", "A"], **words) == [1.0, 1.0, 0.0]


def test_choices_and_references_may_be_numbers_and_letters_in_brackets():
    for said, answer, kind, choices, verdict in (
        ("We count three apples.", "B", "choice", ["2", "3", "4"], 1.0),
        *((said, answer, None, [1, 2, 3], 1.0) for said, answer in (("B", 2), ("2", "B"))),
        *(("2.5", "B", None, [0.5, 2.5], 1.0), ("A", "A", "choice", [], 1.0)),
        *((said, "(b)", "choice", BRACKETED, verdict) for said, verdict in (("(b)", 1.0), ("D", 1.0), ("(d)", 0.0))),
        # A list of choices as a prompt has it is no answer: its last line would name the last choice.
        ("A. oak tree\nB. moss\nC. fern\nD. zooplankton", "D", "choice", None, 0.0),
        ("I see a fern.\nD. zooplankton", "D", "choice", None, 1.0),
    ):
        assert judge(said, answer, kind, choices) == verdict, said
    choices = ["less than", "greater than or equal to", "cannot be told"]  # a doubt in the text of a choice is none
    assert [named(text, choices) for text in (choices[1], f"B. {choices[1]}", "It cannot be told.")] == ["B", "B", "C"]


WRAPPERS = ["{}", "({})", "{}. {}", "**{}**", "The answer is {}.", "Option {}: {}", "{} ({})", "({}) {}"]
WRAPPERS += [r"\boxed{{{}}}"]


@given(st.sampled_from(WRAPPERS), st.sampled_from(WRAPPERS), st.sampled_from([" or ", ", ", " and ", "\n", "; ", " "]))
def test_no_two_wrapped_letters_are_right_for_both(one, other, between):
    """The last box is the answer, whatever stands before it; else two are none."""
    text = one.format("B", FOOD[1]) + between + other.format("D", FOOD[3])
    verdicts = [judge(f"<answer>{text}</answer>", letter, "choice", FOOD) for letter in "BD"]
    assert sum(verdicts) <= ("boxed" in text)
