"""Numbers as people write them, with separators, percent, units, fractions and powers of ten, and their comparison.

Reading uses float arithmetic and patterns without nested repeats, on a bounded number of characters. `9^9^9` and a
million digits are rejected at once.
"""

import math
import re
import unicodedata
from dataclasses import dataclass

MOST_DIGITS = 60
LARGEST_EXPONENT = 300
RELAXED_TOLERANCE = 0.05
"""The tolerance of ChartQA's relaxed accuracy (arXiv 2203.10244, section 5.1): 5 % of the reference."""

_SAME = 1e-9  # float noise
_SAME_FRACTION = 5e-4  # a third is written 0.3333
_FACTORS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PLAIN = r"\d+(?:\.\d*)?|\.\d+"
_NUMERAL = rf"[1-9]\d{{0,2}}(?:(?:,\d{{3}})+|(?:[ ]\d{{3}})+)(?:\.\d+)?|{_PLAIN}"
_TIMES = r"×|\*|x|\\times|\\cdot"
_QUANTITY = re.compile(
    rf"""
    (?P<sign>[+-]?)\ ?(?P<currency>[$€£¥]?)\ ?(?P<sign2>-?)
    (?:
        (?P<whole>\d+)\ (?P<over>\d+)/(?P<under>\d+)                        # 1 1/2
      | (?P<top>{_PLAIN})\ ?/\ ?(?P<bottom>{_PLAIN})                        # 3/4
      | (?P<numeral>{_NUMERAL})
        (?:[eE](?P<e>[+-]?\d{{1,4}})|\ ?(?:{_TIMES})\ ?10\ ?(?:\^|\*\*)\ ?(?P<power>-?\d{{1,4}}|\{{-?\d{{1,4}}\}}))?
    )
    \ ?(?P<percent>%|percent\b)?
    \ ?(?P<rest>[^\d]*(?:\^\{{?[23]\}}?)?)
    """,
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dtc]?frac\s*\{\s*([^{}]{1,30}?)\s*\}\s*\{\s*([^{}]{1,30}?)\s*\}")
_NAME = re.compile(r"^[^=<>]{0,60}=\s*")
_ABOUT = re.compile(r"^(?:about|approximately|approx\.?|around|roughly|≈|~|\\approx|\\sim)\s*", re.IGNORECASE)
_UNIT = re.compile(r"[A-Za-zµμΩ°²³$€£¥¢'\"/·.^{}\\ -]{0,40}(?:\^\{?[23]\}?)?")
_NO_UNIT = {"or", "and", "to", "not", "but", "is", "if", "by", "vs", "versus", "plus", "minus", "times", "over", "pi"}
_NO_UNIT |= {"sqrt", "dozen", "hundred", "half", "third", "quarter", "point"}
_LETTER_UNITS = set("mglsCFKNVWJ°Ω'\"$€£¥¢")  # a unit of one letter; any other letter is a variable
_UNITS = {
    "degree": "° degree degrees deg circ",
    "centimetre": "cm centimeter centimeters centimetre centimetres",
    "millimetre": "mm millimeter millimeters millimetre millimetres",
    "metre": "m meter meters metre metres",
    "kilometre": "km kilometer kilometers kilometre kilometres",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "gram": "g gram grams",
    "kilogram": "kg kilogram kilograms",
    "litre": "l liter liters litre litres",
    "second": "s sec second seconds",
    "minute": "min minute minutes",
    "hour": "h hr hour hours",
    "day": "day days",
    "year": "year years",
    "dollar": "$ dollar dollars usd",
    "euro": "€ euro euros eur",
    "pound": "£ pound pounds gbp",
    "yen": "¥ yen jpy",
    "cent": "¢ cent cents",
}
_KNOWN_UNITS = {name: unit for unit, names in _UNITS.items() for name in names.split()}


@dataclass(frozen=True)
class Quantity:
    """A number with the facts about its notation."""

    value: float  # finite
    percent: bool = False
    unit: str | None = None  # a known unit with its power: "centimetre", "centimetre^2"
    step: float | None = None  # the value of the last decimal place, or None without decimals
    fraction: bool = False


def read_quantity(text: str) -> Quantity | None:
    r"""Return the number and unit that `text` is, or None for two numbers, words, roots and sums.

    The text may have a sign; $, €, £ or ¥ in front; separators in groups of three; `1.2e3`, `1.2 \times 10^3`; `3/4`,
    `\frac{3}{4}`, `1 1/2`; %; thousand to trillion; decimal digits of any script. Text before "=" is a name.
    """
    text = _ABOUT.sub("", _NAME.sub("", _plain(text))).strip()
    match = _QUANTITY.fullmatch(text) if len(text) <= 200 and sum(map(str.isdigit, text)) <= MOST_DIGITS else None
    if match is None or (match["sign"] and match["sign2"]):
        return None
    rest = _rest(match["rest"], match["currency"])
    number = _number(match)
    if rest is None or number is None:
        return None
    factor, unit = rest
    value, step, fraction = number
    value *= factor * (-1.0 if "-" in (match["sign"], match["sign2"]) else 1.0)
    step = None if step is None else step * factor
    return Quantity(value, bool(match["percent"]), unit, step, fraction) if math.isfinite(value) else None


def equal(answer: Quantity, reference: Quantity, *, relaxed: bool = False) -> bool:
    """Return whether `answer` and `reference` are the same number.

    An integer must match exactly, decimals to half a unit of the reference's last place, a fraction to 5e-4 of its
    value. If only one of the two is a percentage, the other may be hundredths or the bare number. Different known
    units are not equal, and no unit is converted. If `relaxed`, the tolerance is 5 % of the reference; a reference of
    0 must match exactly.
    """
    if answer.unit and reference.unit and answer.unit != reference.unit:
        return False
    if _close(answer.value, reference.value, reference, 1.0, relaxed):
        return True
    if answer.percent == reference.percent:
        return False
    if answer.percent:
        return _close(answer.value / 100, reference.value, reference, 1.0, relaxed)
    return _close(answer.value, reference.value / 100, reference, 0.01, relaxed)


def _close(value: float, target: float, reference: Quantity, scale: float, relaxed: bool) -> bool:
    if relaxed:
        return abs(value - target) <= RELAXED_TOLERANCE * abs(target) * (1 + _SAME)
    tolerance = _SAME * abs(target)
    if reference.fraction and not target.is_integer():
        tolerance = _SAME_FRACTION * abs(target)
    elif reference.step is not None:
        tolerance += 0.5 * reference.step * scale * (1 + _SAME)
    return abs(value - target) <= tolerance


def _plain(text: str) -> str:
    """Return `text` with ASCII digits and one notation for spaces, percent, fractions and degrees."""
    # Only digits of category Nd: a superscript two is of another category, and `4²` is not 42.
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text.replace("\u2212", "-"))
    text = re.sub(r"\{,\}|(?<=\d)\\,(?=\d{3})", ",", text).replace(r"\%", "%").replace(r"\$", "$")
    text = re.sub(r"\\[,;!: ]|~|[\u00a0\u2009\u202f\u2007]", lambda m: "~" if m[0] == "~" else " ", text)
    text = _FRACTION.sub(r" \1/\2", text)
    text = re.sub(r"\\(?:text|mathrm|textrm)\s*\{([^{}]*)\}", r" \1", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree", "°", text)
    text = re.sub(r"\s+", " ", text.strip().strip("$").strip() if text.count("$") == 2 else text.strip())
    return re.sub(r"^([+-]) ", r"\1", text)


def _number(match: re.Match[str]) -> tuple[float, float | None, bool] | None:
    """Return the value without sign, the value of the last decimal place, and whether it is a fraction."""
    if match["whole"] or match["top"]:
        over, under = (match["over"], match["under"]) if match["whole"] else (match["top"], match["bottom"])
        if float(under) == 0.0:
            return None
        return float(match["whole"] or 0) + float(over) / float(under), None, True
    numeral = re.sub(r"[ ,]", "", match["numeral"])
    exponent = int((match["e"] or match["power"] or "0").strip("{}"))
    if abs(exponent) > LARGEST_EXPONENT:
        return None
    decimals = len(numeral.partition(".")[2])
    step = float(f"1e{exponent - decimals}") if decimals else None
    return float(f"{numeral}e{exponent}"), step, False


def _rest(rest: str, currency: str) -> tuple[float, str | None] | None:
    """Return the factor and unit after a number, or None for any other text."""
    words = rest.strip().rstrip(".").split()
    factor = 1.0
    if words and words[0].lower() in _FACTORS:
        factor = _FACTORS[words.pop(0).lower()]
    if len(words) > 3 or not _UNIT.fullmatch(" ".join(words)):
        return None
    if any(re.sub(r"[^a-z]", "", word.lower()) in _NO_UNIT for word in words):
        return None
    if words and (words[0][0] in "-/^\\{}.'²³" or (len(words[0]) == 1 and words[0] not in _LETTER_UNITS)):
        return None  # an operator, a command or a variable
    return factor, _unit(" ".join(words) or currency)


def _unit(text: str) -> str | None:
    name = text.lower().replace("²", "^2").replace("³", "^3").replace("{", "").replace("}", "").replace(".", "")
    name = re.sub(r"^(?:square|sq)\s+(.*)$", r"\1^2", re.sub(r"^cubic\s+(.*)$", r"\1^3", name))
    base, _, power = name.partition("^")
    known = _KNOWN_UNITS.get(base.strip())
    return None if known is None else f"{known}^{power}" if power else known
