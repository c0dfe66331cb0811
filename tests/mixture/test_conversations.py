"""Questions and answers out of rows: the formats word for word, as public rows, prompts, build scripts have them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.mixture.conversations import (
    REASONS,
    Question,
    read_chartqa,
    read_conversation,
    read_reply,
    read_row,
    read_scienceqa,
    read_turn,
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
        Question(RATIO, None, "Cyan is slightly more than 1:1 to Firebrick", "text"),
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
    "a formula": (
        "<image>\nFind the length of x.",
        r"The answer is 2\sqrt{3}",
        Question("Find the length of x.", None, r"2\sqrt{3}", "expression"),
    ),
    "a formula in prose": ("<image>\nFind the length of x.", r"It is 5\sqrt{3} cm long.", "no_answer"),
    "a letter without choices": ("<image>\nWhich one is it?", "The answer is B", "not_verifiable"),
    "a letter beyond the choices": ("Which?\nChoices:\n(A) 1\n(B) 2", "The answer is D", "no_answer"),
    "letter and text of different choices": ("Which?\nChoices:\n(A) one\n(B) two", "Answer: B. one", "no_answer"),
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
    assert read_turn(question, reply) == expected


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The answer is $38.51", "$38.51"),
        ("So the total is 1,200.", "1,200"),
        ("The mode is 7.", "7"),
        ("The rate of change is -4 students per year.", "-4"),
        ("The share is 45%.", "45%"),
        ("The probability is 3/4.", "3/4"),
        ("It takes 3 dozen eggs.", None),
        ("The answer is 5 thousand.", "5 thousand"),
        ("It was in the 3rd week.", None),
        ("The train leaves at 3:15.", None),
        ("Monday", "Monday"),
        ("It is Monday.", None),
        ("The final answer is Monday.", "Monday"),
        (r"So $x = \boxed{\frac{3}{4}}$.", r"\frac{3}{4}"),
        ("Therefore the answer is the number of apples, which is 5.", "5"),
        ("yes", "Yes"),
        ("The answer is no.", "No"),
        ("No change", "No change"),
    ],
)
def test_open_answers(reply, answer):
    assert read_reply(reply, None) == answer


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_the_texts_are_a_question_is_verifiable_or_has_a_reason(question, reply):
    reading = read_turn(question, reply)
    if isinstance(reading, str):
        assert reading in REASONS
    else:
        assert judge(f"<answer>{reading.answer}</answer>", reading.answer, reading.answer_type, reading.choices) == 1.0


WORD = st.sampled_from(["left", "right", "5", "angle", "red", "blue", "x", "12°"])
WORDS = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
STYLES = ["({}) ", "{}: ", "{}. ", "{}) "]


@given(st.lists(WORDS, min_size=2, max_size=8), st.sampled_from(STYLES), st.booleans(), st.data())
def test_choices_come_apart_as_they_were_put_together(choices, style, on_lines, data):
    labelled = [style.format(letter) + text for letter, text in zip("ABCDEFGH", choices, strict=False)]
    text = "Which of these is it?\nChoices:" + ("\n" if on_lines else " ") + ("\n" if on_lines else " ").join(labelled)
    assert split_question(text) == ("Which of these is it?", choices)
    letter = data.draw(st.sampled_from("ABCDEFGH"[: len(choices)]))
    assert read_reply(f"The answer is {letter}", choices) == letter


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


def test_every_turn_of_a_conversation_is_read():
    readings = list(read_conversation(TURNS))
    assert [getattr(reading, "text", reading) for reading in sorted(readings, key=str)] == [
        "Is Cyan the minimum?",
        "Is Green the minimum?",
        "no_answer",
    ]


def test_turns_come_in_the_order_asked_for_and_only_as_far_as_they_are_taken():
    first = next(read_conversation(TURNS, order=lambda text: "Cyan" not in text))
    assert first.text == "Is Cyan the minimum?"


def test_turns_of_others_are_passed_over():
    system = {"from": "system", "value": "Be brief."}
    assert list(read_conversation([system, *TURNS[:2], TURNS[2]])) == [
        Question("Is Green the minimum?", None, "Yes", "text")
    ]
    assert list(read_conversation([])) == []


def test_chartqa_rows():
    row = {"query": "What is the value of the bar?", "label": ["0.57"]}
    assert read_chartqa(row) == Question(row["query"], None, "0.57", "number")
    assert read_chartqa({**row, "label": ["Inspired"]}).answer_type == "text"
    assert read_chartqa({**row, "label": ["Yes"]}).answer == "Yes"
    assert read_chartqa({**row, "label": ["1", "2"]}) == "not_verifiable"
    assert read_chartqa({**row, "label": []}) == "no_answer"
    assert read_chartqa({**row, "query": " "}) == "no_question"
    assert list(read_row("chartqa", row)) == [read_chartqa(row)]


def test_scienceqa_rows():
    row = {"question": "Which is it?", "choices": ["a lichen", "a bilberry"], "answer": 1, "hint": "Look at the web."}
    assert read_scienceqa(row) == Question(
        "Which is it?", ["a lichen", "a bilberry"], "B", "choice", context="Look at the web."
    )
    assert read_scienceqa({**row, "hint": ""}).context == ""
    assert read_scienceqa({**row, "answer": 2}) == "no_answer"
    assert read_scienceqa({**row, "answer": None}) == "no_answer"
    assert read_scienceqa({**row, "choices": ["one"], "answer": 0}) == "not_verifiable"
    assert read_scienceqa({**row, "choices": ["same", "same"], "answer": 0}) == "not_verifiable"
    assert read_scienceqa({**row, "question": None}) == "no_question"
    letters = {**row, "choices": ["A", "B"], "answer": 0}  # of points in a picture
    assert read_scienceqa(letters).answer == "A"
