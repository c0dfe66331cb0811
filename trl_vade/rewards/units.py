"""Units of measurement: what is one, and which two measure the same thing."""

import re
from collections import Counter
from dataclasses import dataclass

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
