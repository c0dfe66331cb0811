"""Right answers in other clothes, and wrong ones in the same: sets, clocks, letters, angles, ratios, names."""

from trl_vade.rewards.verifiers import judge

RIGHT = {  # by reference, answers
    r"\{4,9\}": [r"\{9, 4\}", "4 and 9", "9, 4"],
    "4:15 PM": ["16:15", "4:15 p.m.", "4:15pm"],
    "16:15": ["4:15 PM"],
    "9:30 AM": ["9:30", "09:30", "9:30 a.m."],
    "12:05 AM": ["0:05", "00:05"],
    "12:30 PM": ["12:30"],
    "BD": ["B and D", "B, D", "D, B", "(B), (D)", "B, and D"],
    "B, D": ["BD", "D and B"],
    r"45^\circ": [r"\pi/4", r"\frac{\pi}{4}", "pi/4"],
    r"\frac{\pi}{4}": [r"45^\circ", "45 degrees"],
    "12": ["12?"],
    "3x": ["y = 3x", "f(x) = 3x"],
    "(x-1)(x+1)": ["x^2-1"],
    "2/5": ["2:5"],
    "2:5": ["2/5", "2 : 5", "4:10", "2 to 5"],
}
WRONG = {
    r"\{4,9\}": [r"\{4, 8\}", r"\{4\}"],
    "(4,9)": ["(9,4)"],
    "4:15 PM": ["4:15 AM", "15:15"],
    "9:30 AM": ["9:30 PM", "21:30"],
    "16:15": ["4:15", "16/15"],
    "BD": ["B", "B, C, D", "DB?"],
    "BAD": ["DAB", "B, A and D"],
    "Paris": ["Paris?"],
    r"45^\circ": [r"\pi/3", r"\pi"],
    "45": [r"\pi/4"],
    "12": ["13?", "Is it 12?", "12 or 13?"],
    "3x": ["2y = 3x"],
    "2:5": ["5:2", "2:50"],
    "10:20": ["5:10"],
}


def verdicts(answers, reference):
    return {answer: judge(f"So \\boxed{{{answer}}}", reference) for answer in answers}


def test_a_right_answer_is_right_in_other_clothes():
    wrong = {
        (ref, answer) for ref, answers in RIGHT.items() for answer, v in verdicts(answers, ref).items() if v != 1.0
    }
    assert wrong == set()


def test_another_answer_is_wrong_in_the_same_clothes():
    wrong = {
        (ref, answer) for ref, answers in WRONG.items() for answer, v in verdicts(answers, ref).items() if v != 0.0
    }
    assert wrong == set()
