"""The table of cases worked out by hand, and what holds for any text at all."""

import random
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.marks import slow
from tests.support.verifier_cases import CASES, FORMAT_CASES, INFERENCE_CASES, LISTED
from trl_vade.rewards.expression_worker import CPU_SECONDS
from trl_vade.rewards.functions import format_reward
from trl_vade.rewards.verifiers import ANSWER_TYPES, infer_type, judge

MOST_SECONDS = 2.0

# Each of these takes the worker to its limit, which is a second; the default run has a tower of powers.
TO_THE_LIMIT = (
    *("<answer>" + "(" * 900, "<answer>" + "{" * 480 + "2", "<answer>((((9!", "<answer>" + "-" * 900),
    *(r"\boxed{999999999999!", r"\boxed{2^{2^{2^{2^", r"\boxed{10^{10^{10}"),
)


@pytest.mark.parametrize("to_the_limit", [False, slow(True)])
def test_the_verdict_is_the_one_worked_out_by_hand(to_the_limit):
    """And within two seconds, here of the processor, of which another process on the machine takes none."""
    wrong = []
    for kind, case in CASES:
        if (kind == "expression" and case.completion.startswith(TO_THE_LIMIT)) == to_the_limit:
            start = time.process_time()
            verdict = judge(case.completion, case.answer, kind, case.choices, relaxed=case.relaxed)
            seconds = time.process_time() - start + CPU_SECONDS  # what the worker takes is bounded by the kernel
            if verdict != case.verdict or seconds > MOST_SECONDS:
                wrong.append((kind, case.completion[:80], *case[1:], verdict, seconds))
    assert wrong == []


def test_form_and_type_are_told_as_by_hand_and_no_case_has_two_verdicts():
    assert [text[:40] for text, reward in FORMAT_CASES if format_reward([text]) != [reward]] == []
    assert [case for case in INFERENCE_CASES if infer_type(*case[:2]) != case[2]] == []
    assert len(CASES) == len({(kind, *case) for kind, case in LISTED}) >= 750
    assert {kind for kind, _ in CASES} == set(ANSWER_TYPES)


REFERENCES = [
    *(("choice", "B", ["London", "Paris", "3"]), ("choice", "B", None), ("number", "42.5 cm", None)),
    *(("text", "Yes", None), ("expression", r"2\sqrt{3}", None)),
]
PIECES = ["<answer>", "</answer>", "<think>", "</think>", r"\boxed{", "}", "{", r"\frac", "^", "10", "9", "!", "$"]
PIECES += [
    "B",
    "(",
    ")",
    ",",
    "%",
    "e9",
    "/0",
    " or ",
    "The answer is ",
    "\n",
    "\x00",
    "\U0001f600",
    "\ud800",
    "\u00b2",
]
PIECES += ["\u0662"]


@pytest.mark.parametrize("count", [1000, slow(10_000)])
def test_random_strings_never_raise(count):
    chance = random.Random(0)
    for number in range(count):
        kind, answer, choices = REFERENCES[number % len(REFERENCES)]
        text = "".join(
            chance.choice(PIECES) if chance.random() < 0.7 else chr(chance.randrange(1, 0x110000))
            for _ in range(chance.randrange(40))
        )
        assert judge(text, answer, kind, choices) in (0.0, 1.0)
        assert judge(f"<answer>{text}</answer>", answer, kind, choices) in (0.0, 1.0)
        assert infer_type(text, choices) in ANSWER_TYPES


@pytest.mark.slow
def test_no_letter_and_no_digit_of_any_script_raises_or_is_another_one():
    """Patterns that ignore the case take the Turkish dotted I for an i, and `str.upper` does not."""
    for character in map(chr, range(0x80, 0x30000)):
        if unicodedata.category(character) in ("Lu", "Ll", "Lt", "Lm", "Nd", "Nl", "No"):
            is_b = unicodedata.normalize("NFKC", character).upper() == "B" and ord(character) in range(0xFF01, 0xFF5F)
            for choices in (None, ["London", "Paris", "Rome"]):
                assert judge(f"<answer>({character})</answer>", "B", "choice", choices) == float(is_b), character
            is_four = unicodedata.decimal(character, None) == 4
            assert judge(f"<answer>{character}</answer>", "4", "number") == float(is_four), character


INFERRED = [  # a reference without a type, what is right, and what is wrong
    *(("#### 72", ["72"], ["4"]), ("48 + 24 = 72\n#### 72", ["72"], ["24"]), ("<answer>5</answer>", ["5 cm"], ["6"])),
    *((r"\boxed{2\sqrt{7}}", [r"\sqrt{28}"], [r"7\sqrt{2}"]), ("$18$", ["18"], ["81"])),
    *(("**Paris**", ["Paris"], ["Rome"]), ("The answer is 9.", ["9"], ["8"])),
    ("12\u03c0 cm", [r"12\pi cm", r"12\pi", "C = 12\u03c0"], ["12", r"6\pi", "12\u03c0 m", "12\u03c0 cm\u00b2"]),
    (r"24\sqrt{3} cm^2", [r"24\sqrt{3}", "24\u221a3 cm\u00b2"], [r"24\sqrt{2}", "24\u221a3 cm", "24"]),
    (r"12\pi", ["12\u03c0 cm\u00b2", "12\u03c0 square units"], ["12", "37.7", r"12\pi + 1"]),
    ("x^2-1", ["x\u00b2 \u2212 1", "(x-1)(x+1)", "y = x^2 - 1"], ["x^2+1", "x^2-1 or x^2+1", "x^2-1=0"]),
    (r"2\sqrt{3}", [r"2\sqrt{3} \approx 3.46", "2sqrt3"], ["3.46", r"\pm 2\sqrt{3}", r"2\sqrt{3} or 3"]),
    # In other clothes: sets, clocks, letters, angles, names, ratios.
    (r"\{4,9\}", [r"\{9, 4\}", "4 and 9", "9, 4"], [r"\{4, 8\}", r"\{4\}"]),
    *(("(4,9)", [], ["(9,4)"]), ("4:15 PM", ["16:15", "4:15pm"], ["4:15 AM", "15:15"])),
    *(("16:15", ["4:15 PM"], ["4:15", "16/15"]), ("9:30 AM", ["9:30", "09:30", "9:30 a.m."], ["9:30 PM", "21:30"])),
    *(("12:05 AM", ["0:05", "00:05"], []), ("12:30 PM", ["12:30"], [])),
    ("BD", ["B and D", "B, D", "D, B", "(B), (D)", "B, and D"], ["B", "B, C, D", "DB?"]),
    *(("B, D", ["BD", "D and B"], []), ("BAD", [], ["DAB", "B, A and D"]), ("Paris", [], ["Paris?"])),
    (r"45^\circ", [r"\pi/4", r"\frac{\pi}{4}", "pi/4"], [r"\pi/3", r"\pi"]),
    *((r"\frac{\pi}{4}", [r"45^\circ", "45 degrees"], []), ("45", [], [r"\pi/4"])),
    *(("12", ["12?"], ["13?", "Is it 12?", "12 or 13?"]), ("3x", ["y = 3x", "f(x) = 3x"], ["2y = 3x"])),
    ("2:5", ["2/5", "2 : 5", "4:10", "2 to 5"], ["5:2", "2:50"]),
    *(("10:20", [], ["5:10"]), ("2/5", ["2:5"], []), ("(x-1)(x+1)", ["x^2-1"], [])),
]


def test_a_reference_without_a_type_is_read_in_its_dress_and_one_that_cannot_be_read_is_no_trial():
    judged = [(right, 1.0, reference) for reference, rights, _ in INFERRED for right in rights]
    judged += [(wrong, 0.0, reference) for reference, _, wrongs in INFERRED for wrong in wrongs]
    assert [case for case in judged if judge(f"<answer>{case[0]}</answer>", case[2]) != case[1]] == []
    for reference, kind in (("???", "expression"), ("2x+1=", "expression"), ("((", "expression"), ("?", "text")):
        assert judge(f"<answer>{reference}</answer>", reference, kind) is None
        assert judge("<answer>5</answer>", reference, kind) is None


SENTENCES = [
    *(("There are no objects left.", "0"), ("Brazil has the highest value.", "Brazil"), ("The area is 17.", "17")),
    *(("The planet is Mercury.", "Mercury"), ("Yes, it is.", "Yes"), ("It's red.", "red")),
    *(("Mercury is the planet closest to the sun.", "Mercury"), ("There are 17 apples in total.", "17")),
    *(("The point is (3, 4).", "(3, 4)"), ("The answer should be B.", "B")),
    (r"So the length is $2\sqrt{3}$.", r"2\sqrt{3}"),
]


def test_a_sentence_in_the_tag_is_read_as_outside_of_it():
    for sentence, answer in SENTENCES:
        assert judge(f"<answer>{sentence}</answer>", answer) == judge(sentence, answer) == 1.0, sentence
        for doubt in ("It is not so: ", "Maybe ", "If so, "):
            assert judge(f"<answer>{doubt}{sentence}</answer>", answer) == 0.0, doubt + sentence


WRAPPERS = ["{}", "The answer is {}.", "x = {}", r"\boxed{{{}}}", "<answer>There are {} birds.</answer>", "**{}**"]
WRAPPERS += ["{}%", "It costs ${}.", "Answer: {} cm", "{} or 5", "not {}", "<answer>{}</answer>"]
WRAPPERS += ["The answer is {}.\nI hope so!"]


@given(st.integers(-999, 999), st.integers(-999, 999), st.sampled_from(WRAPPERS))
def test_a_wrong_number_is_right_in_no_wrapper(given_, reference, wrapper):
    percent = wrapper.endswith("%") and given_ == 100 * reference
    if given_ != reference and not percent:
        assert judge(wrapper.format(given_), str(reference), "number") == 0.0
        assert judge(wrapper.format(given_), reference) == 0.0


@given(st.text(max_size=80), st.text(max_size=20), st.sampled_from(REFERENCES[:4]))
def test_any_text_has_a_verdict_and_any_reference_is_judged_or_no_trial(text, other, reference):
    kind, answer, choices = reference
    assert judge(text, answer, kind, choices) in (0.0, 1.0)
    assert judge("42", text, kind, choices) in (0.0, 1.0, None)
    kind = infer_type(other)
    if kind != "expression":  # the worker has its own tests
        assert judge(text, other) in (0.0, 1.0, None)
        assert judge(text, other, kind, ["a", other, text]) in (0.0, 1.0, None)


@given(st.integers(2, 26), st.data())
def test_a_letter_is_right_for_its_own_choice_alone(count, data):
    letters = st.integers(0, count - 1).map(lambda i: chr(ord("A") + i))
    given_, right = data.draw(letters), data.draw(letters)
    choices = [f"choice number {i}" for i in range(count)]
    for written in (given_, given_.lower(), f"({given_})", f"{given_}. {choices[ord(given_) - ord('A')]}"):
        assert judge(f"<answer>{written}</answer>", right, "choice", choices) == float(given_ == right)
