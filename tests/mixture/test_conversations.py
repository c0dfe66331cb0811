"""Questions and answers out of rows: the formats word for word, as public rows, prompts, build scripts have them."""

from hypothesis import given
from hypothesis import strategies as st

from scripts.mixture.conversations import REASONS, Dropped, Question, choice_in, read_row, read_turn, read_turns
from scripts.mixture.question_text import normalised_question, split_question, without_instructions
from trl_vade.rewards.verifiers import judge

GEO_170K = (
    "<image>\nFirst perform reasoning, then finally select the question from the choices in the following format: "
    "Answer: xxx.\nQuestion: "
)
HINT = "<image>\nHint: Please answer the question and provide the "
OPTION = f"{HINT}correct option letter, e.g., A, B, C, D, at the end.\nQuestion: "
DIAMOND = "In the given diamond ABCD, EF is denoted as y. If the length of CD is 8.0, what is the value of y?"
EIGHTS = f"{GEO_170K}{DIAMOND}\nChoices:\nA: 4.0\nB: 12.0\nC: 8.0\nD: 4.0"
LINES = "Line a is parallel to line b. If angle 1 measures 32°, what is the degree measure of angle 2?"
ANGLES = f"{GEO_170K}{LINES}\nChoices:\nA: 32°\nB: 68°\nC: 58°\nD: 34°"
ANGLE = Question(LINES, ["32°", "68°", "58°", "34°"], "C", "choice")
CHORD = "As shown in the figure, chord DE ∥ OA, if the degree of ∠D is 50.0, then the degree of ∠C is ()"
CHORD = Question(CHORD, ["25°", "30°"], "A", "choice")
INTEGER = (
    "<image>\nHint: Please answer the question requiring an integer answer and provide the final value, e.g., 1, "
)
MYRA = "If Myra wants to buy one of each item on the list, how much will it cost in total?"
GEO_3K = "<image>Answer the mathemtical geometry problem and directly provide the correct option letter."
KITE = Question("Find the area of the kite.", ["40", "70", "110", "220"], "C", "choice")
GIVE_OUT = "What do respiration and combustion give out"
GASES = Question(GIVE_OUT, ["Oxygen", "Carbon dioxide", "Nitrogen", "Heat"], "B", "choice")
LETTERED = "A. Oxygen\nB. Carbon dioxide\nC. Nitrogen\nD. Heat\n"
BRACKETS = f"{GIVE_OUT}\nChoices:\nA) Oxygen\nB) Carbon dioxide\nC) Nitrogen\nD) Heat"
BALLS = "Subtract all balls. How many objects are left?"
COST = Question(MYRA, None, "$38.51", "number")
GREEN = "Is Green the minimum?"
SIX_OR_FOUR = Question("How many?", ["6.", "4."], "B", "choice")
LEFT = Question("Which?", ["the one by B: left", "other"], "B", "choice")
FIND = r"Find $m\angle H$"
KINDS = {"choice", "number", "expression", "text", "yes_no"}


def reading(read, *arguments):
    """What a function reads, or the reason why it reads nothing."""
    try:
        return read(*arguments)
    except Dropped as dropped:
        return str(dropped)


def failures(cases, read):
    return [(case, found) for case in cases if (found := read(*case[:-1])) != case[-1]]


ROWS = [  # a question, a reply, and what is read
    # geo170k: choices `A: x` on lines, last line `Answer:C`; a value twice among the choices
    (ANGLES, "Angle 2 = 180° - 90° - 32° = 58°. Therefore, the answer is: C.\nAnswer:C", ANGLE),
    (ANGLES, "Angle 1 = 32°. The other one is left over. Therefore, the answer is: C.", ANGLE),
    (ANGLES, "So angle 2 is found. Therefore, the answer is: B.\nAnswer:C", "contradiction"),
    (ANGLES, "Angle 2 = 180° - 90° - 32° = 58°. Therefore, the answer is: A.\nAnswer:A", "contradiction"),
    (EIGHTS, "EF is parallel to BC.\nAnswer:C", Question(DIAMOND, ["4.0", "12.0", "8.0", "4.0"], "C", "choice")),
    (EIGHTS, "EF is parallel to BC.\nAnswer:A", "not_verifiable"),
    # geo3k: all choices on one line, `Short Answer.`; `Question:` on the line of the preamble
    (f"{GEO_3K}\nQuestion: {KITE.text}\nChoices: A: 40 B: 70 C: 110 D: 220\nShort Answer.", "C", KITE),
    (f"{GEO_3K} Question: {KITE.text}\nChoices: A: 40 B: 70 C: 110 D: 220", "(C)", KITE),
    # MathV360K: TabMWP, FigureQA, an option letter with choices `(A) x`, GeoQA+, an integer
    (f"{HINT}final answer at the end.\nQuestion: {MYRA}", "The answer is $38.51", COST),
    (f"{HINT}final answer at the end.\nQuestion: Which?", "The answer is Cyan is more than 1:1", "unmatchable"),
    (f"{OPTION}{FIND}\nChoices:\n(A) 97\n(B) 102", "The answer is B", Question(FIND, ["97", "102"], "B", "choice")),
    (f"{OPTION}{CHORD.text}\nChoices:\n(A) 25°\n(B) 30°", "The answer is A", CHORD),
    (f"{INTEGER}2, 3, at the end.\nQuestion: How many cubes are left?", "The answer is 2.5", "other_kind"),
    # CLEVR-Math: a bare question, and prose; figureqa of the Cauldron
    (f"<image>\n{BALLS}", "The answer is 3", Question(BALLS, None, "3", "number")),
    (f"<image>\n{BALLS}", "There are 5 objects left.", Question(BALLS, None, "5", "number")),
    (f"<image>\n{GREEN}\nAnswer yes or no.", "Yes.", Question(GREEN, None, "Yes", "text")),
    ("Is Web Maroon the low? Answer yes or no.", "No.", Question("Is Web Maroon the low?", None, "No", "text")),
    (f"<image>\n{GREEN}\nAnswer yes or no.", "Green.", "other_kind"),
    # ai2d of the Cauldron; LLaVA, without a header; choices `A) x`, and a reply with letter and text, or the text
    (f"Question: {GIVE_OUT}\nChoices:\n{LETTERED}Answer with the letter.", "Answer: B", GASES),
    (f"<image>\n{GIVE_OUT}\n{LETTERED}Answer with the option's letter from the given choices directly.", "B", GASES),
    (BRACKETS, "B) Carbon dioxide", GASES),
    (BRACKETS, "Carbon dioxide.", GASES),
    ("Question: How many?\nChoices:\nA. 6.\nB. 4.\nAnswer with the letter.", "Answer: B", SIX_OR_FOUR),
    # tabmwp of the Cauldron: the worked solution; several numbers, or none, in the last sentence
    (f"<image>\n{MYRA}", "Add.\n$12.30 + $26.21 = $38.51\nMyra needs $38.51.", COST),
    (f"<image>\n{MYRA}", "Subtract.\n$12.30 - $2.30 is $10 for 2 items.", "no_answer"),
    (f"<image>\n{MYRA}", "$3 + $4 = $7\nSo, there is a shortage.", "no_answer"),
    ("<image>\nWhich kite did Myra like most?", "Find the greatest number.\nShe gave it 7 points.", "other_kind"),
    ("<image>\nHow many?", "4 + 3 = 7\n#### 7", Question("How many?", None, "7", "number")),  # GSM8K's mark
    ("<image>\nFind x.", r"The answer is 2\sqrt{3}", Question("Find x.", None, r"2\sqrt{3}", "expression")),
    *(("<image>\nFind x.", reply, "no_answer") for reply in (r"It is 5\sqrt{3} cm long.", r"It is 2 \pi cm.", "")),
    *(("<image>\nWhich one?", f"The answer is {letter}", "not_verifiable") for letter in ("B", "B) 12")),
    ("Which?\nChoices:\n(A) 1\n(B) 2", "The answer is D", "no_answer"),
    ("Which?\nChoices:\n(A) one\n(B) two", "Answer: B. one", "contradiction"),
    ("Which?\nChoices:\n(A) one\n(B) two", "The answer is A or B", "no_answer"),
    *((text, "A", "no_question") for text in ("<image>\nAnswer yes or no.", "<image>\nChoices:\n(A) 1\n(B) 2")),
    *((text, "one", "no_question") for text in ("Which?\nChoices: one, two", "Which?\nChoices:\n(A)\n(B) 2\n(C) 3")),
    ("Which?\nChoices:\nA: the one by B: left\nB: other", "B", LEFT),
]
OPEN = [
    *(("So the total is 1,200.", "1,200"), ("The share is 45%.", "45%"), ("The answer is 5 thousand.", "5 thousand")),
    *(("It was in the 3rd week.", "no_answer"), ("The train leaves at 3:15.", "no_answer"), ("Monday", "Monday")),
    *(("It is Monday.", "no_answer"), ("It is 5.\nAnswer: ", "no_answer"), ("The final answer is Monday.", "Monday")),
    *((f"The answer is {text}.", "unmatchable") for text in ("one of the two larger ones", "it is larger")),
    (r"So $x = \boxed{\frac{3}{4}}$.", r"\frac{3}{4}"),
    ("Therefore the answer is the number of apples, which is 5.", "5"),
    *(("yes", "Yes"), ("The answer is no.", "No"), ("No change", "No change")),
]


def test_the_formats_of_the_sources_are_read():
    assert failures(ROWS, lambda *turn: reading(read_turn, *turn)) == []

    def answer_in(reply):
        found = reading(read_turn, "Find it.", reply)
        return getattr(found, "answer", found)

    assert failures(OPEN, answer_in) == []


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_the_texts_are_a_question_is_verifiable_or_has_a_reason(question, reply):
    found = reading(read_turn, question, reply)
    if isinstance(found, str):
        assert found in REASONS
    else:
        assert judge(f"<answer>{found.answer}</answer>", found.answer, found.answer_type, found.choices) == 1.0


WORDS = st.lists(st.sampled_from(["left", "right", "5", "angle", "red", "x", "12°"]), min_size=1, max_size=4)


@given(
    st.lists(WORDS.map(" ".join), min_size=2, max_size=8),
    st.sampled_from(["({}) ", "{}: ", "{}. ", "{}) "]),
    st.booleans(),
    st.data(),
)
def test_choices_come_apart_as_they_were_put_together(choices, style, on_lines, data):
    labelled = [style.format(letter) + text for letter, text in zip("ABCDEFGH", choices, strict=False)]
    text = "Which of these is it?\nChoices:" + ("\n" if on_lines else " ") + ("\n" if on_lines else " ").join(labelled)
    assert split_question(text) == ("Which of these is it?", choices)
    letter = data.draw(st.sampled_from("ABCDEFGH"[: len(choices)]))
    assert choice_in(f"The answer is {letter}", choices) == letter


def test_instructions_are_taken_off_and_copies_of_a_question_are_the_same_whatever_case_and_punctuation():
    kept = "Please tell me: what is the answer to life?"
    assert without_instructions(kept) == kept
    assert without_instructions("Answer the question using a single word or phrase.") == ""
    assert without_instructions("How tall is it? Please answer with a number.") == "How tall is it?"
    reason_first = "Please first conduct reasoning, and then answer the question and provide the final value, e.g., 1"
    assert without_instructions(f"{reason_first}, 2.5, 300, at the end.\nQuestion: How tall?") == "How tall?"
    assert split_question("x " * 20_000) is None
    texts = ("Find  $m\\angle H$,  in DEGREES.", "find m angle h in degrees", "Find $m\\angle K$ in degrees")
    one, same, other = map(normalised_question, texts)
    assert one == same != other


TURNS = [
    {"from": "human", "value": "<image>\nIs Green the minimum?\nAnswer yes or no."},
    {"from": "gpt", "value": "Yes."},
    {"from": "human", "value": "Is Cyan the minimum?\nAnswer yes or no."},
    {"from": "gpt", "value": "No."},
    {"from": "human", "value": "How is it?"},
    {"from": "gpt", "value": ""},
]


def read(turns, kinds=KINDS, **settings):
    return list(read_row("conversations", {"conversations": turns}, kinds, **settings))


def test_every_turn_is_read_in_the_order_asked_for_and_those_of_others_and_other_kinds_are_not():
    texts = [getattr(found, "text", found) for found in read(TURNS, order=lambda text: "Cyan" not in text)]
    assert texts[0] == "Is Cyan the minimum?"
    assert sorted(texts) == ["Is Cyan the minimum?", "Is Green the minimum?", "no_answer"]
    assert len(read_turns([{"from": "system", "value": "Be brief."}, *TURNS[:2], TURNS[2]])) == 1
    assert read(None) == []
    assert read(TURNS[:2], {"integer"}) == ["other_kind"]
    count = [{"from": "human", "value": "How many?"}, {"from": "gpt", "value": "The answer is 3"}]
    assert read(count, {"integer"})[0].answer == "3"


CHART = {"query": "What is the value of the bar?", "label": ["0.57"]}
CHARTS = [
    *(({}, "0.57"), ({"label": ["Inspired"]}, "Inspired"), ({"label": ["1", "2"]}, "not_verifiable")),
    *(({"label": []}, "no_answer"), ({"query": " "}, "no_question")),
    # The question and its label speak of the same kind of thing.
    *(({"query": "Is the bar higher?", "label": ["Yes"]}, "Yes"), ({"query": "Is the bar higher?"}, "other_kind")),
    ({"query": "Is it higher in 2014 or 2015?", "label": ["2014"]}, "2014"),
    ({"query": "How many bars are there?", "label": ["Yes"]}, "other_kind"),
    ({"label": ["Share of people who think that it is good"]}, "unmatchable"),
]
SCIENCE = {"question": "Which is it?", "choices": ["a lichen", "a bilberry"], "answer": 1, "hint": "Look."}
SCIENCE["solution"] = ""
SCIENCES = [
    *(({}, "B"), ({"answer": 2}, "no_answer"), ({"answer": None}, "no_answer"), ({"question": None}, "no_question")),
    *(({"choices": choices, "answer": 0}, "not_verifiable") for choices in (["one"], ["same", "same"])),
    ({"choices": ["A", "B"], "answer": 0}, "A"),  # of points in a picture
    # The last line of the solution is a second reading.
    ({"solution": "A lichen eats nothing.\nSo it is a bilberry."}, "B"),
    ({"solution": "So it is a lichen."}, "contradiction"),
    ({"solution": "So it is not a lichen."}, "B"),
    ({"solution": "A bilberry has leaves.\nA lichen has none."}, "B"),  # about the wrong choice, at the end
    ({"choices": ["A", "B"], "solution": "So it is a point."}, "B"),
]


def test_rows_of_chartqa_and_scienceqa():
    def answer(reader, row):
        found = next(iter(read_row(reader, row, KINDS)))
        assert getattr(found, "context", None) in (None, "", "Look.")
        return getattr(found, "answer", found)

    assert failures(CHARTS, lambda changes: answer("chartqa", CHART | changes)) == []
    assert failures(SCIENCES, lambda changes: answer("scienceqa", SCIENCE | changes)) == []
