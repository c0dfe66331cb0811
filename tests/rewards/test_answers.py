"""Where the answer of a completion is found, and text without its decoration."""

from hypothesis import given
from hypothesis import strategies as st

from trl_vade.rewards.answers import LONGEST_ANSWER, find_answer, tagged_answer, undecorated

FOUND = [  # a completion, and its readings
    ("<think>It may be <answer>41</answer>.</think><answer>42</answer>", ["42"]),
    ("<think>It is \\boxed{41}.</think>\n42", ["42"]),
    *(("<think>It is <answer>42</answer>", []), ("<think>a</think>41<think>or 42", [])),  # never ends
    *(("<answer>41</answer> no, <answer>42</answer>", ["42"]), ("<answer><answer>42</answer></answer>", ["42"])),
    ("<answer>41</answer> better: <answer>42", []),  # cut off
    (r"<answer>The area is \boxed{42}, I think</answer>", ["42"]),
    *((rf"so {box}{{\frac{{1}}{{2}}}} it is}}", [r"\frac{1}{2}"]) for box in (r"\boxed", r"\fbox", r"\boxed ")),
    (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),  # shown braces do not close a box
    ("First I add.\nThe area is 42 cm.\n\n", ["The area is 42 cm", "42 cm"]),
    ("So the answer is: (B).", ["(B)"]),
    ("Dover is the capital of Delaware.\nTrenton is the capital of New Jersey.", []),  # a list
    # Else `x = 1 or x = 2` were right for 2, and `B: Paris` for whatever choice Paris is.
    *((whole, [whole]) for whole in ("x = 1 or x = 2", "B: Paris", "It starts at 10:30")),
    *((f"<answer>{lead}B</answer>", ["B"]) for lead in ("The answer is ", "Answer: ", "Final answer: ", "")),
    ("<answer>So, the final answer is: B</answer>", ["B"]),
    *((nothing, []) for nothing in ("", "   ", "<answer></answer>", "<answer> </answer>", r"\boxed{}", r"\boxed{1")),
    (f"<answer>{'1' * LONGEST_ANSWER}</answer>", ["1" * LONGEST_ANSWER]),
    (f"<answer>{'1' * (LONGEST_ANSWER + 1)}</answer>", []),
]
LAST_STATED = [  # and 42 is not read
    ("The answer is 42. Let me check: 6*8=48. So it is 48.", "48"),
    ("The answer is 42.\nLet me check: 6*8=48.\nTherefore the total is 48.", "48"),
    ("The answer is 42. Correction: 48", "48"),
    ("The answer is 48. Let me check: 6*8=48. Yes, that is correct.", "48"),
    ("The answer is 48\n\nExplanation: 6*8 is not 42.", "48"),
    ("48\n\nThe answer is **48**, because 6*8=48.", "48"),
]
DECORATED = ["42", " 42. ", "$42$", r"\(42\)", "**42**", "`42`", '"42"', r"\text{42}", "\uff14\uff12", "4\u200b2"]


def test_the_answer_is_found_and_read_without_its_decoration():
    assert [(find_answer(text), text) for text, readings in FOUND if find_answer(text) != readings] == []
    read = [(find_answer(text), answer) for text, answer in LAST_STATED]
    assert [one for one in read if one[1] not in one[0] or "42" in one[0]] == []
    assert [written for written in DECORATED if undecorated(written) != "42"] == []
    for one_sided in ("$1 or 2$ or $3", "$5$ and $6$", "wait..."):
        assert undecorated(one_sided) == one_sided


@given(st.text(max_size=200))
def test_a_tagged_answer_is_found_whatever_was_thought_before(thought):
    assert find_answer(f"<think>{thought}</think><answer>42</answer>") == ["42"]


@given(st.text(alphabet="<>/answerthinkboxed{}\\ 1\n", max_size=300))
def test_readings_are_short_and_never_blank(text):
    readings = find_answer(text)
    assert len(readings) <= 2
    assert all(reading.strip() and len(reading) <= LONGEST_ANSWER for reading in readings)


TAGGED = [  # what lmms-eval's scoring is given
    *(("<answer>42</answer>", "42"), ("<think>41</think>\n<answer> 42 </answer>\nThat is all.", "42")),
    ("<think><answer>41</answer></think><answer>42</answer>", "42"),
    ("<answer>41</answer> no, <ANSWER>42</ANSWER>", "42"),
    ("<answer>41</answer> better: <answer>42", ""),  # cut off
    ("<answer>**B**: Paris.</answer>", "**B**: Paris."),  # what a benchmark takes off is its own affair
    *(("<think>It is <answer>42</answer>", ""), ("<answer></answer>", "")),
    ("<think>It is 41.</think>The answer is 42", "The answer is 42"),
]


def test_a_benchmark_gets_what_is_in_the_last_tag_after_the_thinking():
    assert [(text, tagged_answer(text)) for text, answer in TAGGED if tagged_answer(text) != answer] == []


@given(st.text(alphabet="answer 42.\n*", max_size=100))
def test_the_tagged_answer_is_that_of_the_training_and_a_text_without_tags_stays_as_it_is(text):
    """Where the reward reads an answer in tags, a benchmark gets the same one, with its decoration."""
    completion = f"<think>It is 7.</think><answer>{text}</answer>"
    assert find_answer(completion) == find_answer(f"<answer>{tagged_answer(completion)}</answer>")
    assert tagged_answer(text) == text
