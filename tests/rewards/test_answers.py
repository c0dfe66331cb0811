"""Where the answer of a completion is found, and text without its decoration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.answers import LONGEST_ANSWER, find_answer, tagged_answer, undecorated


def test_what_was_thought_is_no_answer():
    assert find_answer("<think>It may be <answer>41</answer>.</think><answer>42</answer>") == ["42"]
    assert find_answer("<think>It is \\boxed{41}.</think>\n42") == ["42"]


def test_a_thought_that_never_ends_has_no_answer():
    assert find_answer("<think>It is <answer>42</answer>") == []
    assert find_answer("<think>a</think>41<think>or 42") == []


def test_the_last_of_several_tags_counts():
    assert find_answer("<answer>41</answer> no, <answer>42</answer>") == ["42"]
    assert find_answer("<answer><answer>42</answer></answer>") == ["42"]


def test_a_tag_that_is_not_closed_was_cut_off():
    assert find_answer("<answer>41</answer> better: <answer>42") == []


def test_a_box_inside_the_tag_is_the_answer():
    assert find_answer(r"<answer>The area is \boxed{42}, I think</answer>") == ["42"]


@pytest.mark.parametrize("box", [r"\boxed{\frac{1}{2}}", r"\fbox{\frac{1}{2}}", r"\boxed {\frac{1}{2}}"])
def test_a_box_is_read_to_its_own_brace(box):
    assert find_answer(f"so {box} it is}}") == [r"\frac{1}{2}"]


def test_shown_braces_do_not_close_a_box():
    assert find_answer(r"\boxed{\{1, 2\}}") == [r"\{1, 2\}"]


def test_the_last_line_is_read_as_it_is_and_by_what_it_ends_with():
    assert find_answer("First I add.\nThe area is 42 cm.\n\n") == ["The area is 42 cm", "42 cm"]
    assert find_answer("So the answer is: (B).") == ["(B)"]


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("The answer is 42. Let me check: 6*8=48. So it is 48.", "48"),
        ("The answer is 42.\nLet me check: 6*8=48.\nTherefore the total is 48.", "48"),
        ("The answer is 42. Correction: 48", "48"),
        ("The answer is 48. Let me check: 6*8=48. Yes, that is correct.", "48"),
        ("The answer is 48\n\nExplanation: 6*8 is not 42.", "48"),
        ("48\n\nThe answer is **48**, because 6*8=48.", "48"),
    ],
)
def test_the_last_statement_or_conclusion_wins(completion, answer):
    assert answer in find_answer(completion)
    assert "42" not in find_answer(completion)


def test_sentences_of_one_shape_are_a_list_and_no_answer():
    assert find_answer("Dover is the capital of Delaware.\nTrenton is the capital of New Jersey.") == []


def test_a_line_with_alternatives_or_a_letter_before_a_colon_is_not_taken_apart():
    """Else `x = 1 or x = 2` were right for 2, and `B: Paris` for whatever choice Paris is."""
    assert find_answer("x = 1 or x = 2") == ["x = 1 or x = 2"]
    assert find_answer("B: Paris") == ["B: Paris"]
    assert find_answer("It starts at 10:30") == ["It starts at 10:30"]


@pytest.mark.parametrize("lead", ["The answer is ", "Answer: ", "Final answer: ", "So, the final answer is: ", ""])
def test_a_lead_is_taken_off(lead):
    assert find_answer(f"<answer>{lead}B</answer>") == ["B"]


@pytest.mark.parametrize(
    "written", ["42", " 42. ", "$42$", r"\(42\)", "**42**", "`42`", '"42"', r"\text{42}", "\uff14\uff12", "4\u200b2"]
)
def test_decoration_is_taken_off(written):
    assert undecorated(written) == "42"


def test_what_looks_like_decoration_on_one_side_stays():
    assert undecorated("$1 or 2$ or $3") == "$1 or 2$ or $3"
    assert undecorated("$5$ and $6$") == "$5$ and $6$"
    assert undecorated("wait...") == "wait..."


@pytest.mark.parametrize("nothing", ["", "   ", "<answer></answer>", "<answer> </answer>", r"\boxed{}", r"\boxed{1"])
def test_there_may_be_no_answer(nothing):
    assert find_answer(nothing) == []


def test_what_is_too_long_is_no_answer():
    assert find_answer(f"<answer>{'1' * LONGEST_ANSWER}</answer>") == ["1" * LONGEST_ANSWER]
    assert find_answer(f"<answer>{'1' * (LONGEST_ANSWER + 1)}</answer>") == []


@given(st.text(max_size=200))
def test_a_tagged_answer_is_found_whatever_was_thought_before(thought):
    assert find_answer(f"<think>{thought}</think><answer>42</answer>") == ["42"]


@given(st.text(alphabet="<>/answerthinkboxed{}\\ 1\n", max_size=300))
def test_readings_are_short_and_never_blank(text):
    readings = find_answer(text)
    assert len(readings) <= 2
    assert all(reading.strip() and len(reading) <= LONGEST_ANSWER for reading in readings)


# ---------------------------------------------------------------------------------- what lmms-eval's scoring is given


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("<answer>42</answer>", "42"),
        ("<think>41</think>\n<answer> 42 </answer>\nThat is all.", "42"),
        ("<think><answer>41</answer></think><answer>42</answer>", "42"),
        ("<answer>41</answer> no, <ANSWER>42</ANSWER>", "42"),
        ("<answer>**B**: Paris.</answer>", "**B**: Paris."),  # what a benchmark takes off is its own affair
        ("<answer>41</answer> better: <answer>42", ""),  # cut off
        ("<think>It is <answer>42</answer>", ""),
        ("<answer></answer>", ""),
        ("<think>It is 41.</think>The answer is 42", "The answer is 42"),
    ],
)
def test_a_benchmark_gets_what_is_in_the_last_tag_after_the_thinking(completion, answer):
    assert tagged_answer(completion) == answer


@given(st.text(alphabet="answer 42.\n\\boxed{}*", max_size=100))
def test_a_text_without_tags_goes_to_the_benchmark_as_it_is(text):
    assert tagged_answer(text) == text


@given(st.text(alphabet="answer 42.\n*", max_size=100))
def test_the_tagged_answer_is_that_of_the_training(text):
    """Where the reward reads an answer in tags, a benchmark gets the same one, with its decoration."""
    completion = f"<think>It is 7.</think><answer>{text}</answer>"
    assert find_answer(completion) == find_answer(f"<answer>{tagged_answer(completion)}</answer>")
