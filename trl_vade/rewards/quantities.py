r"""Numbers as people write and say them, with separators, percent, units and powers of ten, and their comparison.

Patterns have no nested repeats and read a bounded number of characters: `9^9^9` is rejected at once.
"""

import functools
import math
import re
from dataclasses import dataclass, replace

from .arithmetic import value_of
from .notation import SPELLED, Unit, fractions_in_digits, in_digits, plain, read_unit

LONGEST = 200  # characters
MOST_DIGITS = 60
LARGEST_EXPONENT = 300
RELAXED_TOLERANCE = 0.05  # of the reference: ChartQA's relaxed accuracy (arXiv 2203.10244, section 5.1)
_SAME = 1e-9  # float noise
_SAME_FRACTION = 5e-4  # a third is written 0.3333
_ROUNDED = 0.01  # the last of three digits is never more than this share of the number
_COARSEST = 0.05  # half a unit of the last decimal is never more than this share of the reference
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9}
_FACTORS |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PLAIN = r"\d+(?:\.\d*)?|\.\d+"
NUMERAL = rf"[1-9]\d{{0,2}}(?:(?:,\d{{3}})+|(?:[ ]\d{{3}})+)(?:\.\d+)?|{_PLAIN}"
_TIMES = r"×|\*|x|·|\\times|\\cdot"
_TEN = r"10\ ?(?:\^|\*\*)\ ?"
CURRENCY = r"US\$|USD|[$€£¥]"
_QUANTITY = re.compile(
    rf"""
    (?P<sign>[+-]?)\ ?(?P<currency>(?:{CURRENCY})?)\ ?(?P<sign2>-?)
    (?:
        (?:(?P<whole>\d+)\ )?(?P<over>{_PLAIN})\ ?/\ ?(?P<under>{_PLAIN})    # 3/4, 1 1/2
      | {_TEN}(?P<tens>-?\d{{1,4}}|\{{[+-]?\d{{1,4}}\}})           # 10^5
      | (?P<numeral>{NUMERAL})
        (?:[eE](?P<e>[+-]?\d{{1,4}})|\ ?(?:{_TIMES})\ ?{_TEN}(?P<power>-?\d{{1,4}}|\{{-?\d{{1,4}}\}}))?
    )
    (?P<suffix>(?:[KMB]|k|bn)(?![A-Za-z]))?
    \ ?(?P<percent>%|percent\b|per\ cent\b)?
    \ ?(?P<rest>[^\d]*(?:\^\{{?-?[1-3]\}}?)?)
    """,
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\frac\s*\{\s*([^{}]{1,30}?)\s*\}\s*\{\s*([^{}]{1,30}?)\s*\}")
_EQUATION = re.compile(r"\s*(?:=|≈|\\approx|\\simeq)\s*")
_NO_NAME = re.compile(r"[<>≤≥≠!]|\\ne|\b(?:or|not|maybe|if)\b|\\(?:lor|vee)\b")
_NAME = re.compile(r"(?:(?:I|a|[^\W\d_]{2,})[\s,:]+)*\$?([a-zA-Z](?:_\{?\w+\}?)?)\$?\s*=")
_SEVERAL = re.compile(r"\band\b|[;,](?!\d{3})")
_SCALED = re.compile(r"\d\s*\*?\s*[a-zA-Z](?![a-zA-Z])|(?<![a-zA-Z])[a-zA-Z]\s*[-+]|[-+]\s*[a-zA-Z](?![a-zA-Z])")
_ABOUT = re.compile(r"^(?:about|approximately|approx\.?|around|roughly|≈|~|\\approx|\\sim)\s*", re.IGNORECASE)
_UNIT = re.compile(r"[A-Za-zµΩ°$€£¥¢'\"/·.^{}\\ -]{0,40}(?:\^\{?-?[1-3]\}?)?")
_NO_UNIT = "or and to not but is if by vs versus plus minus times over pi sqrt dozen hundred half third quarter point "
_NO_UNIT += "than more less fewer between wrong incorrect squared cubed st nd rd th isnt arent wasnt bc bce"
_CLOSED = re.compile(r"sqrt|√|pi|π|\^")
_COMPOUND = re.compile(r"(\d+(?: ?[a-zA-Z]+\.?)),?(?: and)? (\d.*)")  # 2 hours 30 minutes
_TRAILING_UNIT = re.compile(r"(?<=[\d)}πi°])(?:\s+|(?=[a-zA-Z]{2}|°))([a-zA-Z°Ω][a-zA-Z°Ω/.^{}\d ]{0,30})$")
_SPELLED_ALONE = re.compile(rf"(?<![\w-]){SPELLED.pattern}", re.IGNORECASE)
_ONE_NUMBER = re.compile(
    rf"(?:(?<![\w.)])[-+] ?)?(?:(?:{CURRENCY}) ?)?(?<![\w.^_])"
    rf"(?:\d+ \d+/\d+|(?:{NUMERAL})(?:/\d+)?)[KMB]?[%°]?(?!\w)"
)
_YEAR = re.compile(r"\b[Ii]n (?:1[89]|20)\d\d\b(?![.,]\d)")
_BEFORE = re.compile(  # a number after any other word is an index: step 42, pair 1
    r"(?:[a-z][,:]|\b(?:is|are|was|were|be|has|have|had|count|find|needs?|costs?|spent|paid|gets?|got|gives?|us|obtain|equals|of|in|"
    r"at|by|to|with|about|approximately|exactly|only|year)|'re|'s)\W*$",
    re.IGNORECASE,
)
_KNOWN = re.compile(r"\b(?:the|these|those|all|both|other)\s*$", re.IGNORECASE)  # the two lines
_AFTER = re.compile(r"[\s,.()-]*[^\W\d_]{2,}")
_NO_SENTENCE = re.compile(
    r"[=<>≤≥≠≈!^+*\\_{}\[\]\"]|\w\(|\b(?:than|between|at (?:least|most)|(?<!left )over|under|above|below|up to|times|"
    r"twice|double|half|dozen|hundred|squared|cubed|minus|plus|nearly|almost|too|another|(?:none|one) of|step|log|ln|"
    r"sin|cos|tan|exp|sqrt|pi|but|given|know|says?|shown|let|must|need to|bce?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Quantity:
    """A number and how it is written."""

    value: float  # finite
    percent: bool = False
    unit: Unit | None = None  # a known unit
    step: float | None = None  # the value of the last decimal place, or None without decimals
    fraction: bool = False
    factor: float = 1.0  # of thousand, million, ...; part of the value
    of_pi: bool = False  # written with pi, so that beside an angle it is one, in radians
    name: str = ""  # the letter before "=", with its index


@functools.lru_cache(maxsize=4096)  # a group has one reference, and its answers are often equal
def read_quantity(text: str) -> Quantity | None:
    """Return the number and unit that `text` is or that follows its "=", or None for two numbers, roots and sums."""
    name = name_of(text)
    text = in_digits(" ".join(_FRACTION.sub(r" \1/\2", after_name(text)).split()))
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST and sum(map(str.isdigit, text)) <= MOST_DIGITS else None
    if match is None or (match["sign"] and match["sign2"]):
        return _compound(text)
    attached = match["rest"] and text[match.start("rest") - 1] != " "
    rest = _rest(match["rest"], match["currency"], shortest=3 if attached else 2)
    number = _number(match)
    if rest is None or number is None:
        return None
    factor, unit = rest
    factor *= _FACTORS[match["suffix"].lower()] if match["suffix"] else 1.0
    value, step, fraction = number
    value *= factor * (-1.0 if "-" in (match["sign"], match["sign2"]) else 1.0)
    quantity = Quantity(value, bool(match["percent"]), unit, step and step * factor, fraction, factor, name=name)
    return quantity if math.isfinite(value) else None


def _compound(text: str) -> Quantity | None:
    match = _COMPOUND.fullmatch(text) if len(text) <= 40 else None
    first, second = (read_quantity(part) for part in match.groups()) if match else (None, None)
    if not (first and second and first.unit and second.unit) or first.unit.kinds != second.unit.kinds:
        return None
    part = second.value * second.unit.factor / first.unit.factor
    return Quantity(first.value + part, unit=first.unit) if part < 1.0 and second.unit != first.unit else None


@functools.lru_cache(maxsize=4096)
def read_closed(text: str) -> Quantity | None:
    r"""Return `read_quantity`, or the value of a constant with roots, pi and powers, such as `5\sqrt{3}` cm."""
    number = read_quantity(text)
    if number is not None or len(text) > LONGEST:
        return number
    formula, unit = without_unit(after_name(text))
    value = value_of(formula) if _CLOSED.search(formula) else None
    of_pi = bool(re.search("pi|π", formula))
    return Quantity(value[0], unit=unit, of_pi=of_pi, name=name_of(text)) if value and value[1] else None


def without_unit(text: str) -> tuple[str, Unit | None]:
    """Return a constant in plain notation without its unit, and the unit if it is known."""
    match = _TRAILING_UNIT.search(text)
    if match is None:
        return text, None
    unit = read_unit(match[1])
    known = unit is not None or re.fullmatch(r"(?:square |cubic |sq\.? )?units?(?:\^.*)?", match[1].strip())
    formula = text[: match.start()]
    value = value_of(formula) if known else None
    return (formula, unit) if value is not None and value[1] else (text, None)


def equal(answer: Quantity, reference: Quantity, *, relaxed: bool = False) -> bool:
    """Return whether both are the same number by docs/reference/rewards.md; `relaxed` is ChartQA's tolerance."""
    answer, reference = _as_angle(answer, reference), _as_angle(reference, answer)
    one, other = answer.name or reference.name, reference.name or answer.name
    if one not in (other, other[:1]) and other != one[:1]:  # an index may be missing
        return False
    clash = (answer.percent and reference.unit) or (reference.percent and answer.unit)
    if clash or (answer.unit and reference.unit and answer.unit.kinds != reference.unit.kinds):
        return False
    scale = answer.unit.factor / reference.unit.factor if answer.unit and reference.unit else 1.0
    scales = []  # of the answer and the reference
    if answer.percent == reference.percent or relaxed or abs(reference.value) >= 1.0:
        scales.append((scale, 1.0))
    decimals = reference.step is not None and not reference.value.is_integer()
    bare = reference.factor == 1.0 and not (reference.unit or reference.percent or answer.percent)
    if bare and (relaxed or decimals):
        scales.append((scale / answer.factor, 1.0))
    if answer.percent != reference.percent:
        scales.append((0.01, 1.0) if answer.percent else (1.0, 0.01))
    return any(_close(answer, reference, *pair, relaxed) for pair in scales)


def _as_angle(one: Quantity, other: Quantity) -> Quantity:
    radians = one.of_pi and one.unit is None and other.unit is not None and other.unit.kinds == (("angle", 1),)
    return replace(one, unit=read_unit("rad")) if radians else one


def _close(answer: Quantity, reference: Quantity, scale: float, of_reference: float, relaxed: bool) -> bool:
    value, target = answer.value * scale, reference.value * of_reference
    tolerance = _SAME * abs(target)
    if relaxed:
        tolerance = RELAXED_TOLERANCE * abs(target) * (1 + _SAME)
    elif reference.step is not None:
        tolerance += min(0.5 * reference.step * of_reference, _COARSEST * abs(target)) * (1 + _SAME)
    elif reference.fraction and not target.is_integer():
        tolerance = _SAME_FRACTION * abs(target)
        if answer.step and answer.step * scale <= _ROUNDED * abs(value):
            tolerance = max(tolerance, 0.5 * answer.step * scale * (1 + _SAME))
    return abs(value - target) <= tolerance


def after_name(text: str) -> str:
    """Return what an equation ends with, in plain notation: 5 for `x = 5` and `x = 10/2 = 5`; not for `2x = 5`."""
    text = plain(text.strip().strip("$") if text.count("$") == 2 else text)
    *names, last = _EQUATION.split(text)
    if len(" ".join(names)) > LONGEST or _NO_NAME.search("".join(names)) or _SEVERAL.search(" ".join(names[1:])):
        return text
    if len(names) == 1 and _SCALED.search(names[0]):
        return text
    return _ABOUT.sub("", last).strip()


def name_of(text: str) -> str:
    """Return the letter before "=", with its index, or "" for a word, a formula or nothing."""
    found = _NAME.match(plain(text))
    return re.sub("[{}]", "", found[1]) if found else ""


def _number(match: re.Match[str]) -> tuple[float, float | None, bool] | None:
    """Return the value without sign, the value of the last decimal place, and whether it is a fraction."""
    if match["under"]:
        under = float(match["under"])
        return (float(match["whole"] or 0) + float(match["over"]) / under, None, True) if under else None
    numeral = re.sub(r"[ ,]", "", match["numeral"] or "1")
    exponent = int((match["e"] or match["power"] or match["tens"] or "0").strip("{}"))
    if abs(exponent) > LARGEST_EXPONENT:
        return None
    decimals = len(numeral.partition(".")[2])
    step = float(f"1e{exponent - decimals}") if decimals else None
    return float(f"{numeral}e{exponent}"), step, False


def _rest(rest: str, currency: str, shortest: int) -> tuple[float, Unit | None] | None:
    """Return the factor and unit after a number, or None for any other text, as one whose word is too short."""
    words = rest.strip().rstrip(".").split()
    scaled = words and len(words[0]) > 1 and words[0].lower() in _FACTORS
    factor = _FACTORS[words.pop(0).lower()] if scaled else 1.0
    if len(words) > 4 or not _UNIT.fullmatch(" ".join(words)):
        return None
    unit = read_unit(" ".join(words) or currency)
    if unit is None and words:
        if any(re.sub(r"[^a-z]", "", word.lower()) in _NO_UNIT.split() for word in words):
            return None
        if words[0][0] in "-/^\\{}.'" or len(words[0].partition("^")[0]) < shortest:
            return None  # an operator, a command or variables
    return factor, unit


def only_number(sentence: str) -> Quantity | None:
    """Return the one number of a sentence with its unit, or None if the sentence has none or several."""
    text = fractions_in_digits(plain(sentence))
    text = _YEAR.sub("", text) if len(_ONE_NUMBER.findall(text)) > 1 else text
    found = list(_ONE_NUMBER.finditer(text)) or list(_SPELLED_ALONE.finditer(text))
    if len(found) != 1:
        return None
    number, words = found[0][0], text[found[0].end() :].split()
    before, after = text[: found[0].start()], " ".join(words)
    if _NO_SENTENCE.search(f"{before} {number} {after}") or _KNOWN.search(before):
        return None
    if not (_BEFORE.search(before) or _AFTER.match(after) or re.match(CURRENCY, number)):
        return None
    counts = () if re.match(CURRENCY, number) else (4, 3, 2, 1)  # the unit of `$5 in total` is no inch
    attempts = (read_quantity(" ".join([number, *words[:count]])) for count in counts)
    return next((one for one in attempts if one is not None and one.unit is not None), None) or read_quantity(number)
