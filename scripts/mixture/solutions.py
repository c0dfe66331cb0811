"""Read the answer out of a worked solution, by what its question asks for.

The last sentence of a solution answers the question and holds other facts: "Sunday corresponds to 79." So the question
decides what is looked for: a number, a name, one of two alternatives, yes or no. Where two parts of the sentence could
be the answer, there is none.
"""

import re

from trl_vade.rewards.answers import undecorated
from trl_vade.rewards.quantities import read_quantity

_SENTENCE_END = re.compile(r"""(?:(?<=[.?!])|(?<=[.?!]["”]))(?<!\bM[rs]\.)(?<!\bDr\.)(?<!\bMrs\.)\s+""")

_ASKS = re.compile(r"\b(?:how|what|which|who|whose|whom|where|when|why)\b(?:\s+\w+)?", re.IGNORECASE)

_NUMBER_ASKED = re.compile(
    r"how (?:many|much|far|tall|old|fast|heavy|high|wide|deep|big|large)"
    r"|what (?:is|was|are|were|number|fraction|percent)"
)

_VERB = re.compile(r"(?:is|are|was|were|do|does|did|can|will|has|have|had)\b", re.IGNORECASE)

# Two alternatives: a word each, "linear or nonlinear?", or all of the clause after the last comma.
_EITHER = re.compile(
    rf"(?:, (?!{_VERB.pattern})(?:the |an? )?(?P<one>[^,]+?)|\b[a-z]+ (?:the |an? )?(?P<word>[\w'-]+))"
    r" or (?:the |an? )?(?P<other>[^,]+)\?$"
)

_CORRESPONDING = re.compile(r"find the corresponding \w+\.\s+(.{1,60}?) corresponds to \S+$", re.IGNORECASE)

# A minus may stand apart from its number, "was - 7", and a difference is no sign, "9 - 7".
_NUMERAL = re.compile(
    r"(?:(?:(?<=[a-z]{2})|(?<=[=≈:(])|(?<=^))\s*-\s?)?[$€£]?-?"
    r"(?:\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\\frac\{\d+\}\{\d+\})?|\\frac\{\d+\}\{\d+\})%?"
)

_BEFORE = re.compile(r"(?:^|[\s(=≈:])$")

_AFTER = re.compile(r"(?:[.,;:!?)]|°|\s(?!(?:hundred|thousand|million|billion|trillion|dozen|half|quarters?)\b)|$)")

_FORMULA = re.compile(r"[\\√π^]")


def read_solution(question: str, solution: str) -> str | None:
    """Return the answer that the end of `solution` states; None where it cannot be told with certainty."""
    asked, solution = question_sentence(question), undecorated(solution)
    last = sentences(solution)[-1]
    if asks_number(asked):
        return _number(question, last)
    named = _CORRESPONDING.search(solution)
    return named[1] if named else _alternative(asked, last) or _yes_no(asked, last)


def sentences(text: str) -> list[str]:
    """Split a text into its sentences. The titles Mr., Ms., Mrs. and Dr. end none."""
    return [part for line in text.strip().split("\n") for part in _SENTENCE_END.split(line.strip()) if part] or [""]


def question_sentence(text: str) -> str:
    """Return the last sentence that ends in a question mark, else the last one."""
    parts = sentences(text)
    return next((part for part in reversed(parts) if part.rstrip('"”').endswith("?")), parts[-1])


def asks_number(sentence: str) -> bool:
    """Tell whether a sentence asks for a number: "How many", "What is", or "Find" without a question mark."""
    asks = _ASKS.search(sentence)
    if asks is None:
        return not sentence.endswith("?")
    return _NUMBER_ASKED.match(" ".join(asks[0].lower().split())) is not None


def asks_yes_no(sentence: str) -> bool:
    """Tell whether a question begins with a verb and offers no alternatives."""
    return _VERB.match(sentence) is not None and _EITHER.search(sentence) is None


def _number(question: str, sentence: str) -> str | None:
    """Return the only number of the sentence that does not repeat one of the question; None for a formula."""
    numerals = list(_NUMERAL.finditer(sentence))
    for value in map(value_of, _NUMERAL.findall(question)):
        numerals = _without(numerals, value)
    if len(numerals) != 1 or _FORMULA.search(_NUMERAL.sub("", sentence)):
        return None
    start, end = numerals[0].span()
    start += len(numerals[0][0]) - len(numerals[0][0].lstrip())
    if not _BEFORE.search(sentence[:start]) or not _AFTER.match(sentence, end):
        return None
    answer = re.sub(r"\s|(?<=\d),$", "", numerals[0][0])
    return answer if read_quantity(answer) is not None else None


def _without(numerals: list[re.Match[str]], value: float | None) -> list[re.Match[str]]:
    """Return the numerals without the last one of this value: a number that is repeated follows the answer."""
    same = [i for i, numeral in enumerate(numerals) if value_of(numeral[0]) == value]
    return [numeral for i, numeral in enumerate(numerals) if i not in same[-1:]]


def value_of(numeral: str) -> float | None:
    """Return the value of a number as it stands in a text, without its unit; None if it is none."""
    quantity = read_quantity(re.sub(r"\s|(?<=\d),$", "", numeral))
    return None if quantity is None else quantity.value


def _alternative(question: str, sentence: str) -> str | None:
    """Return the one of two alternatives that the sentence names, as "linear or nonlinear?" offers them."""
    either = _EITHER.search(question)
    offered = [text for text in either.groups() if text] if either else []
    if len({text.split()[-1] for text in offered}) < 2 or re.search(r"\bnot\b", sentence):
        return None
    named = [text for text in offered if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", sentence)]
    return named[0] if len(named) == 1 else None


def _yes_no(question: str, sentence: str) -> str | None:
    """Return Yes or No if the last clause repeats the question's verb, with or without "not"."""
    verb = _VERB.match(question)
    if verb is None or not asks_yes_no(question):
        return None
    clause = sentence.rpartition(",")[2]
    if not re.search(rf"\b{verb[0]}\b", clause, re.IGNORECASE):
        return None
    negated = re.search(rf"\b{verb[0]} not\b", clause, re.IGNORECASE)
    return "No" if negated else None if re.search(r"\b(?:not|no|never)\b", clause) else "Yes"
