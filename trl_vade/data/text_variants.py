"""Variants of a question for DIVA-GRPO (arXiv 2603.01106): hints from a solution, and checks of an LLM's texts."""

import re

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_STEP = re.compile(r"\n+|(?<=[.!?])\s+(?=[A-Z\d\\$(])")
_MARK = re.compile(r"^\s*(?:(?:step\s*)?\d+\s*[.):]|[-*•])\s*", re.IGNORECASE)


def steps_of(solution: str) -> list[str]:
    """Return the reasoning steps of a solution: its lines and sentences, without numbers and bullets in front.

    GSM8K's notes of a calculator, `<<3*4=12>>`, and its last line, `#### 12`, are left out.
    """
    text = re.sub(r"<<.*?>>", "", solution.split("####")[0])
    steps = [_MARK.sub("", step).strip() for step in _STEP.split(text)]
    return [step for step in steps if any(map(str.isalnum, step))]


def hints_of(question: str, steps: list[str], levels: int) -> list[str]:
    """Return the question with growing hints, at most `levels` of them: the first steps of a solution.

    The last step is never given, since it holds the answer. Hints of fewer steps than levels are all prefixes.

    Args:
        question: the text to which a hint is added.
        steps: of the solution, in order.
        levels: the largest number of hints, at least 1.
    """
    most = len(steps) - 1
    counts = sorted(
        {round(most * level / min(levels, most)) for level in range(1, min(levels, most) + 1)} if most > 0 else ()
    )
    return [f"{question}\n\nThe first steps of a solution are:\n{_numbered(steps[:count])}" for count in counts]


def lost_numbers(question: str, paraphrase: str) -> list[str]:
    """Return the numbers of the question that the paraphrase lacks, each as often as it is missing."""
    left = _NUMBER.findall(paraphrase)
    lost = []
    for number in _NUMBER.findall(question):
        if number in left:
            left.remove(number)
        else:
            lost.append(number)
    return lost


def tells(hint: str, answer: str) -> bool:
    """Return whether a hint contains the answer as a word or a number of its own."""
    wanted = re.escape(answer.strip())
    return bool(wanted) and re.search(rf"(?<![\w.]){wanted}(?![\w]|\.\d)", hint, re.IGNORECASE) is not None


def _numbered(steps: list[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
