"""Questions and answers out of rows: the formats word for word, as public rows, prompts, build scripts have them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.mixture.conversations import (
    REASONS,
    Dropped,
    Question,
    choice_in,
    read_chartqa,
    read_row,
    read_scienceqa,
    read_turn,
    read_turns,
)
from scripts.mixture.question_text import normalised_question, split_question, without_instructions
from trl_vade.rewards.verifiers import judge

GEO_170K = (
    "<image>\nFirst perform reasoning, then finally select the question from the choices in the following format: "
    "Answer: xxx.\nQuestion: "
)
HINT = "<image>\nHint: Please answer the question and provide the "
DIAMOND = (
    "In the given diamond ABCD, let's denote the length of EF as variable y. If the length of CD is 8.0, what is the "
    "value of y?"
)
LINES = (
    "In the provided diagram, it is known that line l intersects lines a and b at points A and B respectively, and "
    "line a is parallel to line b. Additionally, the perpendicular line passing through point A intersects line b at "
    "point C. If angle 1 measures 32°, what is the degree measure of angle 2?"
)
LINES_REPLY = (
    "Since line a || b, therefore angle 2 + angle BAC + angle 1 = 180°. Since AC perpendicular  BA, therefore angle "
    "BAC = 90°. Therefore, angle 2 = 180° - angle 1 - angle BAC = 180° - 90° - 32° = 58°. Therefore, the answer is: "
    "C.\nAnswer:C"
)
CHORD = (
    "As shown in the figure, CD is the diameter of ⊙O, chord DE ∥ OA, if the degree of ∠D is 50.0, then the degree of "
    "∠C is ()"
)
MYRA = "If Myra wants to buy one of each item on the list, how much will it cost in total?"
GEO_3K = "<image>Answer the mathemtical geometry problem and directly provide the correct option letter."
KITE = ("Find the area of the kite.", ["40", "70", "110", "220"])
RATIO = "What is the approximate ratio of Cyan to Firebrick in the pie chart?"
GIVE_OUT = ("What do respiration and combustion give out", ["Oxygen", "Carbon dioxide", "Nitrogen", "Heat"])

KINDS = {"choice", "number", "expression", "text", "yes_no"}


def reading(read, *arguments):
    """What a function reads, or the reason why it reads nothing."""
    try:
        return read(*arguments)
    except Dropped as dropped:
        return str(dropped)


ROWS = {
    "geo170k: choices `A: x` on lines, last line `Answer:C`": (
        f"{GEO_170K}{LINES}\nChoices:\nA: 32°\nB: 68°\nC: 58°\nD: 34°",
        LINES_REPLY,
        Question(LINES, ["32°", "68°", "58°", "34°"], "C", "choice"),
    ),
    "geo170k: a value twice among the choices, another one right": (
        f"{GEO_170K}{DIAMOND}\nChoices:\nA: 4.0\nB: 12.0\nC: 8.0\nD: 4.0",
        "To determine the value of y, we can use the fact that EF is parallel to BC.\nAnswer:C",
        Question(DIAMOND, ["4.0", "12.0", "8.0", "4.0"], "C", "choice"),
    ),
    "geo170k: the right value twice": (
        f"{GEO_170K}{DIAMOND}\nChoices:\nA: 4.0\nB: 12.0\nC: 8.0\nD: 4.0",
        "To determine the value of y, we can use the fact that EF is parallel to BC.\nAnswer:A",
        "not_verifiable",
    ),
    "geo3k: all choices on one line, `Short Answer.`": (
        f"{GEO_3K}\nQuestion: Find the area of the kite.\nChoices: A: 40 B: 70 C: 110 D: 220\nShort Answer.",
        "C",
        Question(*KITE, "C", "choice"),
    ),
    "geo3k: `Question:` on the line of the preamble": (
        f"{GEO_3K} Question: Find the area of the kite.\nChoices: A: 40 B: 70 C: 110 D: 220",
        "(C)",
        Question(*KITE, "C", "choice"),
    ),
    "MathV360K, TabMWP: a final answer in dollars": (
        f"{HINT}final answer at the end.\nQuestion: {MYRA}",
        "The answer is $38.51",
        Question(MYRA, None, "$38.51", "number"),
    ),
    "MathV360K, FigureQA: free text": (
        f"{HINT}final answer at the end.\nQuestion: {RATIO}",
        "The answer is Cyan is slightly more than 1:1 to Firebrick",
        "unmatchable",
    ),
    "MathV360K: an option letter, choices `(A) x`": (
        f"{HINT}correct option letter, e.g., A, B, C, D, at the end.\nQuestion: Find $m\\angle H$\nChoices:\n(A) 97\n"
        "(B) 102\n(C) 107\n(D) 122",
        "The answer is C",
        Question("Find $m\\angle H$", ["97", "102", "107", "122"], "C", "choice"),
    ),
    "GeoQA+: degrees as choices": (
        f"{HINT}correct option letter, e.g., A, B, C, D, at the end.\nQuestion: {CHORD}\nChoices:\n(A) 25°\n(B) 30°\n"
        "(C) 40°\n(D) 50°",
        "The answer is A",
        Question(CHORD, ["25°", "30°", "40°", "50°"], "A", "choice"),
    ),
    "CLEVR-Math: a bare question": (
        "<image>\nSubtract all balls. How many objects are left?",
        "The answer is 3",
        Question("Subtract all balls. How many objects are left?", None, "3", "number"),
    ),
    "CLEVR-Math, derivative: another one, prose": (
        "<image>\nSubtract 0 cyan cubes. How many objects are left?",
        "There are 5 objects left.",
        Question("Subtract 0 cyan cubes. How many objects are left?", None, "5", "number"),
    ),
    "figureqa of the Cauldron: `Answer yes or no.`": (
        "<image>\nIs Green the minimum?\nAnswer yes or no.",
        "Yes.",
        Question("Is Green the minimum?", None, "Yes", "text"),
    ),
    "figureqa, on one line": (
        "Is Web Maroon the high median? Answer yes or no.",
        "No.",
        Question("Is Web Maroon the high median?", None, "No", "text"),
    ),
    "ai2d of the Cauldron: `A. x`, `Answer with the letter.`": (
        "Question: What do respiration and combustion give out\nChoices:\nA. Oxygen\nB. Carbon dioxide\nC. Nitrogen\n"
        "D. Heat\nAnswer with the letter.",
        "Answer: B",
        Question(*GIVE_OUT, "B", "choice"),
    ),
    "TQA of the Cauldron: choices with full stops": (
        "Question: How many actions are depicted in the diagram?\nChoices:\nA. 6.\nB. 4.\nC. 8.\nD. 7.\nAnswer with "
        "the letter.",
        "Answer: D",
        Question("How many actions are depicted in the diagram?", ["6.", "4.", "8.", "7."], "D", "choice"),
    ),
    "LLaVA: choices on lines of their own, without a header": (
        "<image>\nWhat do respiration and combustion give out\nA. Oxygen\nB. Carbon dioxide\nC. Nitrogen\nD. Heat\n"
        "Answer with the option's letter from the given choices directly.",
        "B",
        Question(*GIVE_OUT, "B", "choice"),
    ),
    "choices `A) x`, and a reply with letter and text": (
        "What do respiration and combustion give out\nChoices:\nA) Oxygen\nB) Carbon dioxide\nC) Nitrogen\nD) Heat",
        "B) Carbon dioxide",
        Question(*GIVE_OUT, "B", "choice"),
    ),
    "a reply with a choice's text alone": (
        "What do respiration and combustion give out\nChoices:\nA) Oxygen\nB) Carbon dioxide\nC) Nitrogen\nD) Heat",
        "Carbon dioxide.",
        Question(*GIVE_OUT, "B", "choice"),
    ),
    "tabmwp of the Cauldron: the worked solution": (
        f"<image>\n{MYRA}",
        "Find the total cost of the items.\n$12.30 + $26.21 = $38.51\nMyra needs $38.51.",
        Question(MYRA, None, "$38.51", "number"),
    ),
    "tabmwp: several numbers in the last sentence": (
        f"<image>\n{MYRA}",
        "Subtract the smaller price.\n$12.30 - $2.30 is $10 for 2 items.",
        "no_answer",
    ),
    "tabmwp: no number in the last sentence": (
        f"<image>\n{MYRA}",
        "$3 + $4 = $7\nSo, there is a shortage.",
        "no_answer",
    ),
    "tabmwp: a number where a name is asked for": (
        "<image>\nWhich kite did Myra like most?",
        "Find the greatest number.\nShe gave it 7 points.",
        "other_kind",
    ),
    "geo170k: two letters": (
        f"{GEO_170K}{LINES}\nChoices:\nA: 32°\nB: 68°\nC: 58°\nD: 34°",
        "So angle 2 is found. Therefore, the answer is: B.\nAnswer:C",
        "contradiction",
    ),
    "geo170k: the steps end in another choice": (
        f"{GEO_170K}{LINES}\nChoices:\nA: 32°\nB: 68°\nC: 58°\nD: 34°",
        LINES_REPLY.replace("the answer is: C.\nAnswer:C", "the answer is: A.\nAnswer:A"),
        "contradiction",
    ),
    "geo170k: an earlier step is another choice": (
        f"{GEO_170K}{LINES}\nChoices:\nA: 32°\nB: 68°\nC: 58°\nD: 34°",
        "Angle 1 = 32°. The other angle is its complement and a right one is left over. Therefore, the answer is: C.",
        Question(LINES, ["32°", "68°", "58°", "34°"], "C", "choice"),
    ),
    "MathV360K: an integer is asked for": (
        "<image>\nHint: Please answer the question requiring an integer answer and provide the final value, e.g., 1, "
        "2, 3, at the end.\nQuestion: How many cubes are left?",
        "The answer is 2.5",
        "other_kind",
    ),
    "figureqa: another word than the two that are asked for": (
        "<image>\nIs Green the minimum?\nAnswer yes or no.",
        "Green.",
        "other_kind",
    ),
    "GSM8K's mark of an answer": (
        "<image>\nHow many?",
        "4 + 3 = 7\n#### 7",
        Question("How many?", None, "7", "number"),
    ),
    "a letter with its text, and no choices": ("<image>\nWhich one is it?", "The answer is B) 12", "not_verifiable"),
    "a formula": (
        "<image>\nFind the length of x.",
        r"The answer is 2\sqrt{3}",
        Question("Find the length of x.", None, r"2\sqrt{3}", "expression"),
    ),
    "a formula in prose": ("<image>\nFind the length of x.", r"It is 5\sqrt{3} cm long.", "no_answer"),
    "a letter without choices": ("<image>\nWhich one is it?", "The answer is B", "not_verifiable"),
    "a letter beyond the choices": ("Which?\nChoices:\n(A) 1\n(B) 2", "The answer is D", "no_answer"),
    "letter and text of different choices": ("Which?\nChoices:\n(A) one\n(B) two", "Answer: B. one", "contradiction"),
    "two letters": ("Which?\nChoices:\n(A) one\n(B) two", "The answer is A or B", "no_answer"),
    "an empty reply": ("<image>\nHow many?", "", "no_answer"),
    "an image and no question": ("<image>\nAnswer yes or no.", "Yes.", "no_question"),
    "choices and no question": ("<image>\nChoices:\n(A) 1\n(B) 2", "A", "no_question"),
    "choices that cannot be told apart": ("Which?\nChoices: one, two", "one", "no_question"),
    "a label within a choice on lines": (
        "Which line is it?\nChoices:\nA: the one by B: left\nB: the other",
        "B",
        Question("Which line is it?", ["the one by B: left", "the other"], "B", "choice"),
    ),
    "a formula after a number in prose": ("<image>\nFind the length of x.", r"It is 2 \pi cm long.", "no_answer"),
    "an empty choice": ("Which?\nChoices:\n(A)\n(B) 2\n(C) 3", "A", "no_question"),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_the_formats_of_the_sources_are_read(name):
    question, reply, expected = ROWS[name]
    assert reading(read_turn, question, reply) == expected


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("So the total is 1,200.", "1,200"),
        ("The share is 45%.", "45%"),
        ("The answer is 5 thousand.", "5 thousand"),
        ("It was in the 3rd week.", "no_answer"),
        ("The train leaves at 3:15.", "no_answer"),
        ("Monday", "Monday"),
        ("It is Monday.", "no_answer"),
        ("It is 5.\nAnswer: ", "no_answer"),
        ("The final answer is Monday.", "Monday"),
        ("The answer is one of the two larger ones.", "unmatchable"),
        ("The answer is it is larger.", "unmatchable"),
        (r"So $x = \boxed{\frac{3}{4}}$.", r"\frac{3}{4}"),
        ("Therefore the answer is the number of apples, which is 5.", "5"),
        ("yes", "Yes"),
        ("The answer is no.", "No"),
        ("No change", "No change"),
    ],
)
def test_open_answers(reply, answer):
    found = reading(read_turn, "Find it.", reply)
    assert getattr(found, "answer", found) == answer


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_the_texts_are_a_question_is_verifiable_or_has_a_reason(question, reply):
    found = reading(read_turn, question, reply)
    if isinstance(found, str):
        assert found in REASONS
    else:
        assert judge(f"<answer>{found.answer}</answer>", found.answer, found.answer_type, found.choices) == 1.0


WORD = st.sampled_from(["left", "right", "5", "angle", "red", "blue", "x", "12°"])
WORDS = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
STYLES = ["({}) ", "{}: ", "{}. ", "{}) "]


@given(st.lists(WORDS, min_size=2, max_size=8), st.sampled_from(STYLES), st.booleans(), st.data())
def test_choices_come_apart_as_they_were_put_together(choices, style, on_lines, data):
    labelled = [style.format(letter) + text for letter, text in zip("ABCDEFGH", choices, strict=False)]
    text = "Which of these is it?\nChoices:" + ("\n" if on_lines else " ") + ("\n" if on_lines else " ").join(labelled)
    assert split_question(text) == ("Which of these is it?", choices)
    letter = data.draw(st.sampled_from("ABCDEFGH"[: len(choices)]))
    assert choice_in(f"The answer is {letter}", choices) == letter


def test_instructions_are_taken_off_and_nothing_else():
    kept = "Please tell me: what is the answer to life?"
    assert without_instructions(kept) == kept
    assert without_instructions("Answer the question using a single word or phrase.") == ""
    assert without_instructions("How tall is it? Please answer with a number.") == "How tall is it?"
    reason_first = "Please first conduct reasoning, and then answer the question and provide the final value, e.g., 1"
    assert without_instructions(f"{reason_first}, 2.5, 300, at the end.\nQuestion: How tall?") == "How tall?"


def test_a_very_long_text_is_no_question():
    assert split_question("x " * 20_000) is None


def test_two_copies_of_a_question_are_the_same_whatever_case_and_punctuation():
    one = normalised_question("Find  $m\\angle H$,  in DEGREES.")
    assert one == normalised_question("find m angle h in degrees")
    assert one != normalised_question("Find $m\\angle K$ in degrees")


TURNS = [
    {"from": "human", "value": "<image>\nIs Green the minimum?\nAnswer yes or no."},
    {"from": "gpt", "value": "Yes."},
    {"from": "human", "value": "Is Cyan the minimum?\nAnswer yes or no."},
    {"from": "gpt", "value": "No."},
    {"from": "human", "value": "How is it?"},
    {"from": "gpt", "value": ""},
]


def read(turns, **settings):
    return list(read_row("conversations", {"conversations": turns}, KINDS, **settings))


def test_every_turn_of_a_conversation_is_read():
    assert [getattr(found, "text", found) for found in sorted(read(TURNS), key=str)] == [
        "Is Cyan the minimum?",
        "Is Green the minimum?",
        "no_answer",
    ]


def test_turns_come_in_the_order_asked_for():
    assert read(TURNS, order=lambda text: "Cyan" not in text)[0].text == "Is Cyan the minimum?"


def test_turns_of_others_are_passed_over():
    system = {"from": "system", "value": "Be brief."}
    assert len(read_turns([system, *TURNS[:2], TURNS[2]])) == 1
    assert read(None) == []


def test_a_kind_of_answer_that_the_source_does_not_have_is_dropped():
    row = {"conversations": TURNS[:2]}
    assert list(read_row("conversations", row, {"integer"})) == ["other_kind"]
    count = [{"from": "human", "value": "How many?"}, {"from": "gpt", "value": "The answer is 3"}]
    assert next(read_row("conversations", {"conversations": count}, {"integer"})).answer == "3"


CHART = {"query": "What is the value of the bar?", "label": ["0.57"]}


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, "0.57"),
        ({"label": ["Inspired"]}, "Inspired"),
        ({"label": ["1", "2"]}, "not_verifiable"),
        ({"label": []}, "no_answer"),
        ({"query": " "}, "no_question"),
        # The question and its label speak of the same kind of thing.
        ({"query": "Is the green bar higher?", "label": ["Yes"]}, "Yes"),
        ({"query": "Is the green bar higher?"}, "other_kind"),
        ({"query": "Is it higher in 2014 or 2015?", "label": ["2014"]}, "2014"),
        ({"query": "How many bars are there?", "label": ["Yes"]}, "other_kind"),
        ({"query": "Which year is best?", "label": ["2014"]}, "2014"),
        ({"label": ["Share of people who think that it is good"]}, "unmatchable"),
    ],
)
def test_chartqa_rows(changes, answer):
    found = next(read_row("chartqa", CHART | changes, KINDS))
    assert getattr(found, "answer", found) == answer
    assert isinstance(found, str) or found == read_chartqa(CHART | changes)


SCIENCE = {
    "question": "Which is it?",
    "choices": ["a lichen", "a bilberry"],
    "answer": 1,
    "hint": "Look.",
    "solution": "",
}


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, "B"),
        ({"answer": 2}, "no_answer"),
        ({"answer": None}, "no_answer"),
        ({"choices": ["one"], "answer": 0}, "not_verifiable"),
        ({"choices": ["same", "same"], "answer": 0}, "not_verifiable"),
        ({"question": None}, "no_question"),
        ({"choices": ["A", "B"], "answer": 0}, "A"),  # of points in a picture
        # The last line of the solution is a second reading.
        ({"solution": "A lichen eats nothing.\nSo it is a bilberry."}, "B"),
        ({"solution": "So it is a lichen."}, "contradiction"),
        ({"solution": "So it is not a lichen."}, "B"),
        ({"solution": "A bilberry has leaves.\nA lichen has none."}, "B"),  # about the wrong choice, at the end
        ({"choices": ["A", "B"], "solution": "So it is a point."}, "B"),
        ({"solution": "A lichen is smaller than a bilberry."}, "B"),
    ],
)
def test_scienceqa_rows(changes, answer):
    found = reading(read_scienceqa, SCIENCE | changes)
    assert getattr(found, "answer", found) == answer
    assert getattr(found, "context", "Look.") == "Look."
