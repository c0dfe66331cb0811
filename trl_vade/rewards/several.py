"""Answers of several values, each in one form: sets, lists, alternatives, inequalities and the values of letters."""

import itertools
import re

from .answers import HEDGE
from .arithmetic import value_of
from .notation import plain
from .quantities import after_name, equal, name_of, read_closed, without_unit

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
