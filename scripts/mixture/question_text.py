"""Separate the question in a data set's text from instructions and choices.

The formats are those of the LLaVA-OneVision-Data family, as far as public rows, prompts and build scripts show them
(Geo170K, geo3k, MathV360K, the Cauldron, LLaVA); `tests/mixture/test_conversations.py` has them word for word.
"""

import re
import string
import unicodedata

LONGEST_QUESTION = 20_000
"""In characters. A longer text is not searched, and counts as no question."""

LONGEST_INSTRUCTION = 400

_END = r"(?:[.:](?=\s|$)|(?=\n|$))"

_INSTRUCTION = "|".join(
    [
        r"First perform reasoning\b[^\n]*?Answer: ?xxx\.?",  # Geo170K
        r"Hint: ?Please answer the question\b[^\n]*? at the end\.?",  # MathV360K
        r"Answer the math\w* geometry problem\b[^\n]*? letter\.?",  # geo3k, which writes "mathemtical"
        r"Answer with (?:only )?the (?:option'?s? )?letter\b[^\n.]*\.?",  # the Cauldron; LLaVA
        r"(?:Please )?answer (?:with )?(?:\"?yes\"? or \"?no\"?)[^\n.]*\.?",  # the Cauldron, FigureQA
        r"Answer the question (?:using|with|in)\b[^\n.]*\.?",  # LLaVA: "... using a single word or phrase."
        r"Please (?:first |directly )?(?:conduct reasoning|answer|provide\b[^\n]*?\banswer)\b[^\n]*?" + _END,
        r"(?:Provide|Give) a (?:short|brief|very brief)\b[^\n.]*\.?",
        r"Short answer[.:]?",
        r"Answer:",
    ]
)

_HEAD = re.compile(rf"(?:{_INSTRUCTION})\s*", re.IGNORECASE)

_TAIL = re.compile(rf"(?:^|\s+)(?:{_INSTRUCTION})$", re.IGNORECASE)

_MARK = re.compile(r"(?:^|(?<=[.!?])[ \t]|(?<=\n))[ \t]*Question:[ \t]*")

_HEADER = re.compile(r"(?:^|\s)(?:Choices|Options):\s*", re.IGNORECASE)

_FIRST_LABEL = re.compile(r"\(A\)|A([:.)])")

_FIRST_LINE = re.compile(r"\n[ \t]*(?=\(A\)|A[:.)])")


_ASKED_KINDS = {
    r"\b(?:option'?s? letter|answer with (?:only )?the letter)\b": "choice",
    r"\banswer (?:with )?\"?yes\"? or \"?no\b": "yes_no",
    r"\brequiring an integer\b": "integer",
    r"\brequiring a floating-point\b": "number",
}


def asked_kind(text: str) -> str | None:
    """Return the kind of answer that the instructions of a text ask for; None where they leave it open."""
    return next((kind for words, kind in _ASKED_KINDS.items() if re.search(words, text, re.IGNORECASE)), None)


def split_question(text: str) -> tuple[str, list[str] | None] | None:
    """Return question and choices of a text (None for no choices); None if it has no readable question.

    Choices are labelled A, B, ... as `(A) x`, `A: x`, `A. x` or `A) x`: a line each, or all on one line after
    "Choices:".
    """
    if len(text) > LONGEST_QUESTION:
        return None
    text = without_instructions(text.replace("\r\n", "\n"))
    header = None
    for header in _HEADER.finditer(text):  # noqa: B007  the last one
        pass
    if header is None:
        question, choices = _lines_at_the_end(text)
    else:
        question, choices = text[: header.start()], _labelled(text[header.end() :])
        if choices is None:
            return None
    question = without_instructions(question)
    if not normalised_question(question) or (choices and not all(choices)):
        return None
    return question, choices


def without_instructions(text: str) -> str:
    """Remove image markers, "Question:" marks, and the known instructions in front and behind."""
    text = re.sub(r"[ \t]*<image>[ \t]*", " ", text).strip()
    for _ in range(10):
        before = text
        head = _HEAD.match(text)
        if head:
            text = text[head.end() :]
        text = _MARK.sub("", text).strip()
        end = max(text.rfind("\n") + 1, len(text) - LONGEST_INSTRUCTION)
        text = (text[:end] + _TAIL.sub("", text[end:], count=1)).rstrip()
        if text == before:
            break
    return text


def normalised_question(text: str) -> str:
    """Reduce a text to its letters and digits, in NFKC and without case, with one space between words."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


def _lines_at_the_end(text: str) -> tuple[str, list[str] | None]:
    """Return question and choices of a text without a header, whose last lines are `A. x`, `B. x` and so on."""
    first = None
    for first in _FIRST_LINE.finditer(text):  # noqa: B007  the last one
        pass
    choices = None if first is None else _labelled(text[first.end() :], lines=True)
    return (text, None) if first is None or choices is None else (text[: first.start()], choices)


def _labelled(text: str, *, lines: bool = False) -> list[str] | None:
    """Return the texts of two or more choices, else None. With `lines` each has to begin a line."""
    first = _FIRST_LABEL.match(text)
    if first is None:
        return None
    label = r"{}" + re.escape(first[1]) if first[1] else r"\({}\)"
    by_line = re.search(r"\n[ \t]*" + label.format("B"), text) is not None
    if lines and not by_line:
        return None
    between = r"\n[ \t]*" if by_line else r"\s+"
    texts, start = [], first.end()
    for letter in string.ascii_uppercase[1:]:
        found = re.compile(between + label.format(letter)).search(text, start)
        if found is None:
            break
        texts.append(text[start : found.start()])
        start = found.end()
    texts.append(text[start:])
    return [" ".join(choice.split()) for choice in texts] if len(texts) > 1 else None
