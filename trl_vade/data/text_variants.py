"""Variants of a question for DIVA-GRPO (arXiv 2603.01106): hints from a solution, and what an LLM is asked to write.

Hints never hold the last step of a solution. A paraphrase is checked without trust in the LLM: it keeps every number.
"""

import re

PARAPHRASE = (
    "Say this question in other words. Keep its meaning, every number, name, unit and formula, and about its length. "
    "A question stays a question. Do not answer it, and write nothing but the new question.\n\nQuestion:\n{question}"
)
STEPS = (
    "Here are a question and its right answer. Write a solution in 3 to 8 short steps, one on each line and numbered. "
    "Do not name the answer before the last line, which is `Answer: ` and the answer.\n\n"
    "Question:\n{question}\n\nRight answer:\n{answer}"
)
LONGEST_SOLUTION = 20_000
"""Characters. A longer text of an LLM is no solution in a few steps."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_STEP = re.compile(r"\n+|(?<=[.!?])\s+(?=[A-Z\d\\$(])")
_MARK = re.compile(r"^\s*(?:(?:step\s*)?\d+\s*[.):]|[-*•])\s*", re.IGNORECASE)
_THOUGHT = re.compile(r"^.*</think>", re.DOTALL)
_MARKUP = re.compile(r"<(?:!doctype|html|head|body|script)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\W*(?:(?:i'?m|i am|we are|we're)?\s*(?:very |so )?(?:sorry|unable|afraid)\b|unfortunately\b|as an ai\b"
    r"|(?:i|we) (?:can(?:no|')t|can not|am not|won't|will not)\b)",
    re.IGNORECASE,
)


def steps_of(solution: str) -> list[str]:
    """Return the reasoning steps of a solution: its lines and sentences, without numbers and bullets in front.

    GSM8K's notes of a calculator, `<<3*4=12>>`, and its last line, `#### 12`, are left out.
    """
    text = re.sub(r"<<.*?>>", "", solution.split("####")[0])
    steps = [_MARK.sub("", step).strip() for step in _STEP.split(text)]
    return [step for step in steps if any(map(str.isalnum, step))]


def hint_sizes(steps: int, levels: int) -> list[int]:
    """Return how many of a solution's steps each hint gives, in ascending order; at most `levels` hints.

    The last step is never given, since it holds the answer.

    Args:
        steps: of the solution.
        levels: the largest number of hints, at least 1.
    """
    most = steps - 1
    return sorted({round(most * level / min(levels, most)) for level in range(1, min(levels, most) + 1)})


def with_hint(question: str, steps: list[str]) -> str:
    """Return the question with steps of a solution after it."""
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return f"{question}\n\nThe first steps of a solution are:\n{numbered}"


def said(reply: str) -> str:
    """Return an LLM's reply without its thoughts, and without quotes and fences around it."""
    text = reply.encode(errors="replace").decode()  # JSON may hold half of a pair, which no file can
    return _THOUGHT.sub("", text).strip().strip('`"“”').strip()


def no_text(reply: str) -> str | None:
    """Return why a reply is no text to use: it is empty, a web page or a refusal. None if it is one."""
    if not reply or len(reply) > LONGEST_SOLUTION:
        return "too long" if reply else "empty"
    if _MARKUP.search(reply):
        return "a web page"
    return "the LLM refuses" if _REFUSAL.match(reply) else None


def no_paraphrase(question: str, reply: str) -> str | None:
    """Return why a reply is no paraphrase of the question, or None if nothing speaks against it."""
    fault = no_text(reply)
    if fault:
        return fault
    if lost_numbers(question, reply):
        return "lost a number"
    if len(reply) > 2 * max(len(question), 40):
        return "too long"
    if "?" in question and "?" not in reply:
        return "no question"
    words = _words(question)
    if words and len(words & _words(reply)) < 0.2 * len(words):
        return "about something else"
    return None


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


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text, as they are written."""
    return _NUMBER.findall(text)


def tells(hint: str, answer: str) -> bool:
    """Return whether a hint contains the answer as a word or a number of its own.

    The letter of a choice counts as a capital only, and an A in front of a small letter not, unless `option`, `choice`
    or `answer` introduces it.
    """
    wanted = answer.strip()
    if len(wanted) == 1 and wanted.isalpha():
        letter = wanted.upper()
        named = rf"(?i:option|choice|answer(?: is)?):?\s+\(?{letter}\b"
        return re.search(rf"(?<![\w.]){letter}(?!\w{'| [a-z]' if letter == 'A' else ''})|{named}", hint) is not None
    around = rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)"
    return bool(wanted) and re.search(around, hint, re.IGNORECASE) is not None


def _words(text: str) -> set[str]:
    """Return the words that say what a text is about: of four letters or more, or of one letter, such as x."""
    return {word for word in re.findall(r"[^\W\d_]+", text.casefold()) if len(word) > 3 or len(word) == 1} - {"a", "i"}
