"""The verifier: one rule for each type of answer.

Training (`rewards`), evaluation (`eval/metrics`) and the building of the data set (`scripts/mixture`) all use `judge`,
so they agree.
"""

import re
import string
from collections.abc import Sequence

from trl_vade.errors import ConfigurationError, abbreviated

from .answers import find_answer, undecorated
from .expressions import equal_expressions
from .quantities import equal, read_quantity

ANSWER_TYPES = ("choice", "number", "text", "expression")


# ASCII keeps the Turkish dotted I, which is no letter of a choice, out of [a-z] in any case.
_LETTER = re.compile(r"(?:(?:option|choice)\s+)?[(\[{]?\s*([a-z])\s*[)\]}]?\s*[.:)]?", re.IGNORECASE | re.ASCII)
_LETTER_AND_TEXT = re.compile(r"(?:[(\[]\s*([A-Za-z])\s*[)\]]\s*[.:]?|([A-Za-z])\s*[.:)])\s*(\S.*)", re.DOTALL)
_ALTERNATIVES = re.compile(r"\bor\b|\\text\s*\{\s*or\s*\}|\\lor\b|\\vee\b", re.IGNORECASE)
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_FUNCTIONS = "sqrt|sin|cos|tan|log|ln|exp|pi"
_FORMULA = re.compile(
    r"[\\√π^=]"
    r"|[\d)a-z]\s*[+*/<>]\s*[\d(a-z]"
    r"|[\d)]\s*-\s*[(a-z]|[a-z)]\s*-\s*[\d(]"  # two numbers with a dash are a range (2010-2015), or a date
    r"|^[(\[].*,.*[)\]]$"
    rf"|(?<![a-z])(?:{_FUNCTIONS})\s*\(",
    re.IGNORECASE,
)
_WORD = re.compile(rf"(?<![\\a-z])(?!\d*(?:{_FUNCTIONS})(?![a-z]))[a-z]{{2,}}", re.IGNORECASE)


def judge(
    completion: str,
    answer: str | None,
    answer_type: str | None = None,
    choices: Sequence[str] | None = None,
    *,
    relaxed: bool = False,
) -> float | None:
    r"""Return 1.0 if `completion` has the right answer, 0.0 if not, and None if `answer` itself cannot be read.

    `answers.find_answer` finds the answer. The types are:

    * choice: the letter (`B`, `(b)`, `B. Paris`) or the text of the right choice. Two letters are wrong, and so is a
      letter with the text of another choice.
    * number: see `quantities` for units, percent, separators and precision.
    * text: the same words in any case, apart from an article in front and punctuation at the end.
    * expression: mathematically equal, by math-verify with limits. Alternatives (`1 or 2`) are wrong.

    Args:
        completion: the whole text of a completion.
        answer: the reference. For choices it is a letter (A is the first) or the text of a choice.
        answer_type: "choice", "number", "text" or "expression"; None to infer it by `infer_type`.
        choices: the texts of the choices, 26 at most.
        relaxed: whether numbers within 5 % of the reference are right, as in ChartQA (arXiv 2203.10244).

    Raises:
        ConfigurationError: `answer_type` is unknown, or an expression needs math-verify and it is not installed.
    """
    kind = infer_type(answer or "", choices) if answer_type is None else answer_type
    if kind not in ANSWER_TYPES:
        raise ConfigurationError(
            f"answer_type={abbreviated(answer_type)} is unknown. Set the column answer_type to one of "
            f"{', '.join(ANSWER_TYPES)}, or leave it out to infer the type from the answer."
        )
    reference = undecorated(answer or "")
    if not reference:
        return None
    readings = find_answer(completion)
    if kind == "choice":
        right = _choice_reference(reference, choices)
        return None if right is None else float(any(_is_choice(reading, right, choices) for reading in readings))
    if kind == "number":
        number = read_quantity(reference)
        if number is None:
            return None
        given = [read_quantity(reading) for reading in readings]
        return float(any(one is not None and equal(one, number, relaxed=relaxed) for one in given))
    if kind == "text" and not normalised_text(reference):
        return None
    same = _same_text if kind == "text" else _same_expression
    return float(any(same(reading, reference) for reading in readings))


def infer_type(answer: str, choices: Sequence[str] | None = None) -> str:
    """Return the type of a reference, inferred from its text and its choices."""
    reference = undecorated(answer)
    if choices:
        return "choice"
    if read_quantity(reference) is not None:
        return "number"
    # Letters of a word are not variables: COVID-19.
    formula = _FORMULA.search(reference) and ("\\" in reference or not _WORD.search(reference))
    return "expression" if formula and re.search(r"\d|[\\√π^=]", reference) else "text"


def normalised_text(text: str) -> str:
    """Return `text` without decoration, case, leading article, outer brackets and final punctuation."""
    text = " ".join(undecorated(text).casefold().split())
    for _ in range(5):
        before = text
        text = text.rstrip(".,;:!?").strip()
        if len(text) > 2 and _PAIRS.get(text[0]) == text[-1]:
            text = text[1:-1].strip()
        if text == before:
            break
    article, _, rest = text.partition(" ")
    return rest if article in ("a", "an", "the") and rest else text


def _same_text(answer: str, reference: str) -> bool:
    return normalised_text(answer) == normalised_text(reference)


def _same_expression(answer: str, reference: str) -> bool:
    if "".join(answer.split()) == "".join(reference.split()):
        return True
    number, expected = read_quantity(answer), read_quantity(reference)
    if number is not None and expected is not None:
        return equal(number, expected)
    if _ALTERNATIVES.search(answer) and not _ALTERNATIVES.search(reference):
        return False
    return equal_expressions(reference, answer)


def _choice_reference(reference: str, choices: Sequence[str] | None) -> int | None:
    """Return the number of the right choice, from 0, or None if it is unknown or ambiguous."""
    letter = _LETTER.fullmatch(reference)
    if letter and (choices is None or _index(letter[1]) < len(choices)):
        return _index(letter[1])
    same = [i for i, choice in enumerate(choices or ()) if _same_text(reference, choice)]
    return same[0] if len(same) == 1 else None


def _is_choice(answer: str, right: int, choices: Sequence[str] | None) -> bool:
    letter = _LETTER.fullmatch(answer)
    if letter and (choices is None or _index(letter[1]) < len(choices)):
        return _index(letter[1]) == right
    if choices is None:
        both = _LETTER_AND_TEXT.fullmatch(answer)
        return both is not None and _index(both[1] or both[2]) == right and not _names_others(both[3])
    if right >= len(choices):
        return False
    if _has_text(answer, right, choices):
        return True
    both = _LETTER_AND_TEXT.fullmatch(answer)
    return both is not None and _index(both[1] or both[2]) == right and _has_text(both[3], right, choices)


def _has_text(answer: str, right: int, choices: Sequence[str]) -> bool:
    """Return whether `answer` is the text of the right choice, or the number of this choice alone."""
    if _same_text(answer, choices[right]):
        return True
    number = read_quantity(answer)
    numbers = [read_quantity(undecorated(choice)) for choice in choices]
    if number is None:
        return False
    return [i for i, one in enumerate(numbers) if one is not None and equal(number, one)] == [right]


def _names_others(text: str) -> bool:
    """Return whether the text after a letter starts with another letter: `B) or C)`, `A: B`."""
    return re.match(r"(?:(?:or|and|,|/)\s*)*[(\[]?[A-Z][)\].:]?(?:\s|$)", text, re.IGNORECASE) is not None


def _index(letter: str) -> int:
    return string.ascii_uppercase.index(letter.upper())
