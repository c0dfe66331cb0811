"""The verifier: one rule for each type of answer. Training, evaluation and `scripts/mixture` use the same `judge`."""

import itertools
import math
import numbers
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from trl_vade.errors import ConfigurationError, abbreviated

from .answers import HEDGE, SENTENCE_END, find_answer, reference_in
from .arithmetic import value_of
from .choices import chosen, labelled, without_letters
from .expressions import equal_expressions
from .notation import normalised_text, plain, same_text
from .quantities import Quantity, after_name, equal, name_of, only_number, read_closed, read_quantity, without_unit

ANSWER_TYPES = ("choice", "number", "text", "expression")

_ABOUT = re.compile(r"≈|\\approx|\\simeq")
_NOTHING = re.compile(r"(?:so |now )?there (?:is|are|were|will be) no(?:ne| [^\d?]*)", re.IGNORECASE)
_RATIO = re.compile(r"(?<=\d) ?: ?(?=\d+$)")
_POINTS = re.compile("(?:angle|triangle)[A-Z]+")
_SIGNS = str.maketrans({"∠": "angle", "△": "triangle", **dict.fromkeys("\\{} ", "")})
_FUNCTIONS = "sqrt|sin|cos|tan|log|ln|exp|pi"
_FORMULA = re.compile(
    r"[\\√π^=≤≥]|[\d)a-z]\s*[+*/<>]\s*[-\d(a-z]"
    r"|[\d)]\s*-\s*[(a-z]|[a-z)]\s*-\s*[\d(]"  # two numbers with a dash are a range (2010-2015), or a date
    r"|^[(\[{].*,.*[)\]}]$|^\d+(?-i:[xyz])$"
    rf"|(?<![a-z])(?:{_FUNCTIONS})\s*\(",
    re.IGNORECASE,
)
_WORD = re.compile(rf"(?<![\\a-z])(?!\d*(?:{_FUNCTIONS})(?![a-z])|(?:and|or)\b)[a-z]{{2,}}", re.IGNORECASE)


def judge(
    completion: str,
    answer: Any,
    answer_type: str | None = None,
    choices: Sequence[Any] | None = None,
    *,
    relaxed: bool = False,
) -> float | None:
    """Return 1.0 if `completion` has the right answer by docs/reference/rewards.md, 0.0 if not, None without one.

    Args:
        completion: the whole text of a completion.
        answer: the reference: a text, a number, a bool (yes or no), or a list of accepted answers. For choices it is
            a letter (A is the first), the text of a choice, or, beside texts, its place, an integer from 0.
        answer_type: "choice", "number", "text" or "expression"; None, "" or NaN to infer it by `infer_type`.
        choices: the choices, 26 at most, with their letters or without; None or [] if only their letters are known.
        relaxed: whether numbers within 5 % of the reference are right, as in ChartQA (arXiv 2203.10244).

    Raises:
        ConfigurationError: `answer_type` is unknown, or an expression needs math-verify and it is not installed.
    """
    answer_type = told_type(answer_type)
    if answer_type not in (None, *ANSWER_TYPES):
        raise ConfigurationError(
            f"answer_type={abbreviated(answer_type)} is unknown. Set the column answer_type to one of "
            f"{', '.join(ANSWER_TYPES)}, or leave it out to infer the type from the answer."
        )
    given = [] if choices is None else [*choices]
    texts = without_letters(["" if one is None else as_text(one) for one in given])  # its letter keeps its place
    readings = find_answer(completion)
    place = isinstance(answer, numbers.Integral) and not isinstance(answer, bool)
    if place and answer_type in (None, "choice") and any(isinstance(one, str) for one in given):
        # Its letter, since another choice may be that number.
        answer = string.ascii_uppercase[answer] if 0 <= answer < min(len(texts), 26) else None
    verdicts = [_judge_one(readings, one, answer_type, texts, relaxed) for one in accepted(answer)]
    return max((verdict for verdict in verdicts if verdict is not None), default=None)


def told_type(answer_type: Any) -> Any:
    """Return a cell of `answer_type`, with None for an empty text and for the NaN of a table without a value."""
    return None if answer_type == "" or answer_type != answer_type else answer_type


def accepted(answer: Any) -> list[str]:
    """Return the texts of a reference, each of which is right: of a list its elements, of a bool also yes or no."""
    if isinstance(answer, list | tuple | set | np.ndarray):
        return [text for one in answer for text in accepted(one)]
    if isinstance(answer, bool | np.bool_):
        return ["True", "yes"] if answer else ["False", "no"]
    return [] if answer is None else [as_text(answer)]


def as_text(value: Any) -> str:
    """Return a cell as text: a float without the digits that its column of 32 bits has added."""
    if not isinstance(value, numbers.Real) or isinstance(value, int) or not math.isfinite(value):
        return str(value)
    number = float(value)
    if number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    short = np.float32(number)
    return str(short) if float(short) == number else repr(number)


def infer_type(answer: str, choices: Sequence[Any] | None = None) -> str:
    """Return the type of a reference, inferred from its text and its choices."""
    reference = reference_in(answer)
    if choices or labelled(reference) is not None:
        return "choice"
    if read_quantity(reference) is not None:
        return "number"
    formula, _ = without_unit(plain(reference))
    # Letters of a word are not variables: COVID-19.
    found = _FORMULA.search(formula) and ("\\" in formula or not _WORD.search(formula))
    return "expression" if found and re.search(r"\d|[\\√π^=]", formula) else "text"


def needs_math_verify(answer: Any, answer_type: str | None = None, choices: Sequence[Any] | None = None) -> bool:
    """Return whether a row's reference is an expression."""
    return "expression" in (
        [answer_type] if told_type(answer_type) else [infer_type(one, choices) for one in accepted(answer)]
    )


def _judge_one(readings: list[str], answer: str, kind: str | None, choices: list[str], relaxed: bool) -> float | None:
    kind = kind or infer_type(answer, choices)
    reference = reference_in(answer)
    if not reference:
        return None
    if kind == "choice":
        right = chosen([reference], choices)
        return None if right is None else float(chosen(readings, choices) == right)
    if kind == "number":
        number = read_quantity(reference)
        return None if number is None else float(_has_number(readings, number, relaxed))
    if kind == "text":
        known = members(reference)
        same = [same_text(one, reference) or (len(known) > 1 and same_values(members(one), known)) for one in readings]
        return float(any(same)) if normalised_text(reference) else None
    values = members(without_unit(plain(reference))[0])
    readable = all(read_closed(one) or value_of(one) for one in values)
    # math-verify is asked as the last one.
    if not (readable or equal_expressions(as_one(values), as_one(values)) is not None):
        return None
    return float(any(_same_expression(one, reference) for one in readings))


def _has_number(readings: list[str], number: Quantity, relaxed: bool) -> bool:
    if number.value == 0.0 and any(map(_NOTHING.fullmatch, readings)):
        return True
    ratios = [_RATIO.sub("/", one) for one in readings] if number.fraction else readings
    given = [one for one in map(read_closed, ratios) if one is not None]
    if not given:
        sentences = [one for one in readings if not HEDGE.search(one) and not SENTENCE_END.search(one)]
        given = [one for one in map(only_number, sentences) if one is not None][:1]
    return any(equal(one, number, relaxed=relaxed) for one in given)


def _same_expression(answer: str, reference: str) -> bool:
    if "".join(answer.split()) == "".join(reference.split()):
        return True
    points, given = plain(reference).translate(_SIGNS), plain(answer).translate(_SIGNS)
    if _POINTS.fullmatch(points):  # their letters are no factors
        return given == points or (given.startswith("angle") and given[5:] == points[:4:-1])
    answer = _ABOUT.split(plain(answer))[0].strip() or answer  # exact, and not about how much
    number, expected = read_closed(answer), read_closed(reference)
    if number is not None and expected is not None:
        return equal(number, expected)
    values, wanted = members(answer), members(reference)
    same = same_values(values, wanted)
    if same is not None:
        return same
    answer, reference = as_one(values), as_one(wanted)
    if HEDGE.search(answer) and not HEDGE.search(reference):
        return False
    right, _ = without_unit(plain(reference))
    given, _ = without_unit(answer if "=" in right else after_name(answer))
    if given.partition("=")[0].strip() == right.partition("=")[0].strip():
        given, right = after_name(given), after_name(right)
    if "=" in given and "=" not in right and len(given.split("=")) == 2 and "," not in given:
        return False  # another side than a name, such as `2y`, which math-verify leaves out
    value, other = value_of(given), value_of(right)
    if value is not None and other is not None:
        return math.isclose(value[0], other[0], rel_tol=1e-9, abs_tol=1e-9)
    return bool(equal_expressions(right, given))


_OR = re.compile(r"\bor\b|\\(?:lor|vee)(?![a-z])|\u2228")
_BETWEEN = re.compile(rf"(?:;|(?<!\d),|,(?!\d{{3}}(?!\d)))(?:\s*(?:and|or)\b)?|\band\b|{_OR.pattern}")
_BRACKET = re.compile(r"([(\[{]|\\begin)|[)\]}]|\\end")
_EITHER_SIGN = re.compile(r"\\pm(?![a-z])|±")
_SET = re.compile(r"(?:\w ?= ?)?\\?\{(.*?)\\?\}")
_TURNED = str.maketrans(">≥", "<≤")
_BOUNDS = re.compile(r"(?=.*[<≤])(?:([^<>≤≥,]+)([<≤]))? ?([a-zA-Z]) ?(?:([<≤])([^<>≤≥,]+))?")


def members(text: str) -> list[str]:
    r"""Return the elements of a set, a list or alternatives, of which ± makes two; any other text alone.

    Inequalities are a union of intervals, as `x = (1, 2]`. Values of several letters are a point, `(x, y) = (1, 2)`.
    """
    text = _EITHER_SIGN.sub("±", plain(text))
    parts = [re.split("([>≥])", part.strip())[::-1] for part in _OR.split(text.replace("$", ""))]
    bounds = [found for part in parts if (found := _BOUNDS.fullmatch("".join(part).translate(_TURNED)))]
    if len(bounds) == len(parts) and len({one[3] for one in bounds}) == 1:
        lows = [("[" if one[2] == "≤" else "(") + (one[1] or "-∞") for one in bounds]
        highs = [(one[5] or "∞") + ("]" if one[4] == "≤" else ")") for one in bounds]
        return [f"{bounds[0][3]} = " + r" \cup ".join(map(", ".join, zip(lows, highs, strict=True)))]
    inside = _SET.fullmatch(text)
    whole = inside[1].replace(",", ", ") if inside else text
    spans = (cut.span() for cut in _BETWEEN.finditer(whole))
    cuts = [cut for cut in spans if not sum(1 if one else -1 for one in _BRACKET.findall(whole, 0, cut[0]))]
    found = [whole[start:end].strip() for (_, start), (end, _) in itertools.pairwise([(0, 0), *cuts, (len(whole), 0)])]
    found = [one.replace("±", sign) for one in found for sign in ("+-" if one.count("±") == 1 else "±")]
    named = sorted((name_of(one), after_name(one)) for one in found)
    if named[0][0] and len({name[0] for name, _ in named}) > 1:
        return [" = ".join(f"({', '.join(column)})" for column in zip(*named, strict=True))]
    return found if len(found) > 1 else [text]


def as_one(several: list[str]) -> str:
    """Return members as a set, and one alone as it is."""
    return rf"\{{{', '.join(several)}\}}" if len(several) > 1 else several[0]


def same_values(given: list[str], expected: list[str]) -> bool | None:
    """Return whether both are the same constants in any order, or None if one is no constant."""
    if len(given) != len(expected):
        return False
    read = {one: read_closed(one) for one in [*given, *expected]}
    values = [value_of(without_unit(after_name(one))[0]) for one in read]
    if any(map(HEDGE.search, given)) or not (all(read.values()) and all(value and value[1] for value in values)):
        return None
    pairs = zip(*(sorted(several, key=lambda one: read[one].value) for several in (given, expected)), strict=True)
    return all(equal(read[one], read[other]) for one, other in pairs)
