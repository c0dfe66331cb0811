r"""One notation for spellings of numbers, formulas, texts and units: `x²`, `½`, `5 \text{ cm}`, `one half`."""

import functools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from .answers import undecorated

_TABLE = """\
length = 1 m meter metre | 0.01 cm cms centimeter centimetre | 0.001 mm millimeter millimetre
length = 1000 km kilometer kilometre | 0.0254 in inch inches " | 0.3048 ft foot feet ' | 0.9144 yd yard
length = 1609.344 mi mile
mass = 1 kg kilogram kilo | 0.001 g gram gm | 1e-6 mg milligram | 1000 tonne | 0.028349523 oz ounce
time = 1 s sec second | 0.001 ms millisecond | 60 min minute | 3600 h hr hour | 86400 day | 604800 week
time = 31557600 yr year | 2629800 month
angle = 1 ° degree deg | 57.29577951308232 rad radian
dollar = 1 $ dollar usd us$ buck | 0.01 ¢ cent
volume = 0.001 l liter litre | 1e-6 ml milliliter millilitre cc | 0.003785411784 gallon gal
force = 1 N newton | 1000 kN kilonewton
energy = 1 J joule | 1000 kJ kilojoule | 4.184 cal calorie
power = 1 W watt | 1000 kW kilowatt
voltage = 1 V volt
current = 1 A ampere amp | 0.001 mA milliampere
resistance = 1 Ω ohm Ω
pressure = 1 Pa pascal | 1000 kPa kilopascal
frequency = 1 Hz hertz
amount = 1 mol mole
data = 1 GB gigabyte | 0.001 MB megabyte | 1e-6 KB kB kilobyte
celsius = 1 °C celsius
fahrenheit = 1 °F fahrenheit
kelvin = 1 K kelvin
pound = 1 £ pound gbp lb lbs
euro = 1 € euro eur
yen = 1 ¥ yen jpy
"""  # a pound is of money or of weight: the word does not tell
_LINES = [line.split(" = ") for line in _TABLE.splitlines()]
_SIZES = [(kind, size.split()) for kind, sizes in _LINES for size in sizes.split(" | ")]
_KNOWN = {name: (kind, float(factor)) for kind, (factor, *names) in _SIZES for name in names}
_PHRASES = [
    (re.compile(r"\\Omega\b"), "Ω"),
    (re.compile(r"\bdegrees? (celsius|fahrenheit)\b|° (c|f)\b", re.IGNORECASE), lambda m: m[1] or f"°{m[2].upper()}"),
    (re.compile(r"\b(?:mph|m\.p\.h\.?)(?![a-z])"), "mile/hour"),
    (re.compile(r"\bk(?:m|p)h\b"), "km/hour"),
    (re.compile(r"\b(?:square|sq\.?) ([a-z]+)", re.IGNORECASE), r"\1^2"),
    (re.compile(r"\bcubic ([a-z]+)", re.IGNORECASE), r"\1^3"),
    (re.compile(r"\b([a-z]+) squared\b", re.IGNORECASE), r"\1^2"),
    (re.compile(r"\s*(?:/|\bper\b)\s*", re.IGNORECASE), "/"),
]
_ONE = re.compile(r"(?P<name>[^\W\d_]+|[°$€£¥¢'\"]|°[CF]|US\$)\.?(?:\^\{?(?P<power>-?[1-9])\}?)?")


@dataclass(frozen=True)
class Unit:
    """What is measured, such as length^1 time^-1, and how many of the base unit it is."""

    kinds: tuple[tuple[str, int], ...]
    factor: float


def read_unit(text: str) -> Unit | None:
    """Return the unit that `text` is, or None for one that is not known, such as `apples`."""
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    kinds = Counter[str]()
    factor = 1.0
    for place, part in enumerate(text.split("/")):
        for word in re.split(r"[ ·*]+", part.strip()):
            match = _ONE.fullmatch(word)
            name = match["name"] if match else ""
            lower = name.lower() if len(name) > 1 else name
            known = _KNOWN.get(name) or _KNOWN.get(lower) or _KNOWN.get(lower.removesuffix("s"))
            if match is None or known is None:
                return None
            kind, size = known
            power = int(match["power"] or 1) * (-1 if place else 1)
            factor *= size**power
            kind, power = ("length", 3 * power) if kind == "volume" else (kind, power)
            kinds[kind] += power
    return Unit(tuple(sorted(kinds.items())), factor)


_SUPERSCRIPTS = {ord(written): plain for written, plain in zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True)}
_SPELLINGS = {0x2010 + i: "-" for i in range(6)} | {
    **{0x2212: "-", 0x2044: "/", 0x2215: "/", 0x2236: ":", 0x2217: "*", 0x22C5: "·"},
    **{0xBA: "°", 0x2DA: "°", 0x2103: "°C", 0x2109: "°F", 0x3BC: "µ"},
}
_BRACED = r"\s*\{([^{}]*)\}"
_RULES = [
    (re.compile(f"[{''.join(map(chr, _SUPERSCRIPTS))}]+"), lambda m: f"^{{{m[0].translate(_SUPERSCRIPTS)}}}"),
    (re.compile(r"\^\s*(?:\\circ|\{\s*(?:\\circ|°)\s*\})|\\degree|\\circ"), "°"),
    (re.compile(r"\{,\}|(?<=\d)\\,(?=\d{3})"), ","),
    # Not the second backslash of `\\ `, which ends a row of a matrix.
    (re.compile(r"(?<!\\)\\(?:[,;:! ]|(?:q?quad|left|right|displaystyle)\b)|(?<!^)~|[\u00a0\u2009\u202f\u2007]"), " "),
    (re.compile(r"\\([%$#&])"), r"\1"),
    (re.compile(r"\\(?:text|mathrm|textrm|textbf|mathbf|mbox|rm)" + _BRACED), lambda m: f" {m[1].strip()} "),
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\frac" + _BRACED + r"\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\ge(?:q|qslant)?(?![a-z])|>="), "≥"),
    (re.compile(r"\\le(?:q|qslant)?(?![a-z])|<="), "≤"),
    *((re.compile(rf"\\{name}(?![a-z])"), sign) for name, sign in (("lt", "<"), ("gt", ">"))),
    (re.compile(r"^(\$?[a-zA-Z]\$?) ?(?:∈|\\in(?![a-z]))"), r"\1 ="),
    (re.compile(r"\s+(?=\^)"), ""),
    (re.compile(r"\s+"), " "),
]
_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_SMALL += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: number for number, word in enumerate(_SMALL.split())} | {"none": 0}
_WORDS |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
_NUMBER_WORD = "|".join(sorted(_WORDS, key=len, reverse=True))
SPELLED = re.compile(rf"(?P<first>{_NUMBER_WORD})(?:[ -](?P<second>{_NUMBER_WORD}))?(?P<hundred> hundred)?\b", re.I)
_PARTS = "half halve third quarter fourth fifth sixth eighth tenth"
_PART_OF = dict(zip(_PARTS.split(), (2, 2, 3, 4, 4, 5, 6, 8, 10), strict=True))
_FRACTION = re.compile(
    rf"\b(?:({_NUMBER_WORD}|\d+) and )?(a(?= half)|{_NUMBER_WORD})[ -]({'|'.join(_PART_OF)})s?\b", re.IGNORECASE
)
_SUBSCRIPTS = {0x2080 + i: str(i) for i in range(10)}  # of H₂O
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_LETTERS = re.compile(r"\(?[A-H]\)?(?:(?:,? and |[,;&] ?| )\(?[A-H]\)?)+")
_WORD_OF_LETTERS = re.compile("[A-H]{2,}")
_RATIO = re.compile(r"(\d{1,9}) ?(?::|/| to ) ?(\d{1,9})")
_FIRST = re.compile(r"(yes|no|true|false)\s*[,.;:!]", re.IGNORECASE)
_NTH = "first second third fourth fifth sixth seventh eighth ninth tenth"
_ORDINALS = {word: number for number, word in enumerate(_NTH.split(), 1)}
_FACTORIAL = re.compile(r"\d*[a-z]!")
_AND = re.compile(r",? and |, ")
_UNANSWERED = re.compile(r"\bor\b|\?|maybe|\bi (?:cannot|can't|do(?:n't| not) know|am not sure)|\bi'm not sure|unable")
_WORD_RULES = [
    (re.compile(r"\.(?!\d)"), ""),  # p.m., U.S., Dr.
    (re.compile(r"(?<=\d)\s*([-:,])\s*(?=\d)"), r"\1"),
    (re.compile(r"(?<=\d)\s+to\s+(?=\d)"), "-"),
    (re.compile(r"(?<=\d)\s+(?=[ap]m\b)"), ""),
    (re.compile(r"\b(\d{1,2}):(\d\d)([ap])m\b"), lambda m: f"{int(m[1]) % 12 + 12 * (m[3] == 'p')}:{m[2]}"),
    (re.compile(r"\b0(?=\d:\d\d\b)"), ""),
    (re.compile(r"\\text\{([^{}]*)\}|_(?=\d)"), r"\1"),
    (re.compile(r"(?<=[a-z]),(?=[a-z])"), ", "),
    (re.compile(rf"\b(?:({'|'.join(_ORDINALS)})|(\d+)(?:st|nd|rd|th))\b"), lambda m: f"{_ORDINALS.get(m[1], m[2])}th"),
    (re.compile(r"^(?:(?:in|on|at) )?(?:(?:an?|the) )?(?=.)"), ""),
]


@functools.lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return `text` with ASCII digits, fractions as `1/2` or LaTeX, powers as `^{2}`, and units outside of `text`."""
    text = "".join(_character(character) for character in text.translate(_SPELLINGS))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


def _character(character: str) -> str:
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    return character


def fractions_in_digits(text: str) -> str:
    """Return `text` with two thirds as 2/3, and one and a half as 1 1/2."""

    def digits(m: re.Match[str]) -> str:
        whole, over, part = ((m[number] or "").lower() for number in (1, 2, 3))
        return f"{_WORDS.get(whole, whole)} {1 if over == 'a' else _WORDS[over]}/{_PART_OF[part]}".strip()

    return _FRACTION.sub(digits, text)


def in_digits(text: str) -> str:
    """Return `text` with a sign or number that it begins with in words as digits."""
    minus = re.match(r"(?:negative|minus) ", text, re.IGNORECASE)
    text, sign = (text[minus.end() :], "-") if minus else (text, "")
    text = fractions_in_digits(text)
    spelled = SPELLED.match(text)
    if spelled:
        first, second = _WORDS[spelled["first"].lower()], _WORDS.get((spelled["second"] or "").lower())
        if second is None or (first >= 20 and 0 < second < 10):
            text = f"{(first + (second or 0)) * (100 if spelled['hundred'] else 1)}{text[spelled.end() :]}"
    return sign + re.sub(r"^([+-]) ", r"\1", text)


@functools.lru_cache(maxsize=4096)
def normalised_text(text: str) -> str:
    """Return `text` without decoration, case, a leading article, outer brackets, full stops and final punctuation."""
    text = " ".join(undecorated(text).translate(_SUBSCRIPTS).casefold().split())
    for _ in range(5):
        before = text
        text = text if _FACTORIAL.fullmatch(text) else text.rstrip(".,;:!?").strip()
        if len(text) > 2 and _PAIRS.get(text[0]) == text[-1]:
            text = text[1:-1].strip()
        if text == before:
            break
    for pattern, replacement in _WORD_RULES:
        text = pattern.sub(replacement, text)
    return text


def same_text(answer: str, reference: str) -> bool:
    """Return whether both are the same words, or `answer` begins with the yes or no that the reference is."""
    expected, found = normalised_text(reference), normalised_text(answer)
    if expected in (found, re.sub("(?<=[a-z])-(?=[a-z])", " ", found)):
        return True
    if " and " in expected and sorted(_AND.split(found)) == sorted(_AND.split(expected)):
        return True
    forms = [_LETTERS if _LETTERS.fullmatch(text) else _WORD_OF_LETTERS for text in (answer, reference)]
    if _LETTERS in forms and forms[0].fullmatch(answer) and forms[1].fullmatch(reference):
        letters = re.findall("[A-H]", reference)  # of BD in their order: BED is a word
        return sorted(re.findall("[A-H]", answer)) == (sorted(letters) if forms[1] is _LETTERS else letters)
    ratio, given = _RATIO.fullmatch(expected), _RATIO.fullmatch(answer.strip())
    if ratio and given and ":" in ratio[0] and not re.search(r":\d\d$", expected):  # `4:15` is a clock
        return int(ratio[1]) * int(given[2]) == int(ratio[2]) * int(given[1])
    first = _FIRST.match(answer)
    if first is None or first[1].casefold() != expected:
        return False
    others = {"yes", "no", "true", "false"} - {expected}
    rest = answer[first.end() :].casefold()
    return not (others & set(re.findall(r"[a-z]+", rest)) or _UNANSWERED.search(rest))
