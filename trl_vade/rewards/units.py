"""Units of measurement: what is one, and which two measure the same thing."""

import re
from dataclasses import dataclass

_TABLE = {
    "length": {
        1.0: "m meter metre",
        0.01: "cm cms centimeter centimetre",
        0.001: "mm millimeter millimetre",
        1000.0: "km kilometer kilometre",
        0.0254: 'in inch inches "',
        0.3048: "ft foot feet '",
        0.9144: "yd yard",
        1609.344: "mi mile",
    },
    "mass": {
        1.0: "kg kilogram kilo",
        0.001: "g gram gm",
        1e-6: "mg milligram",
        1000.0: "tonne",
        0.028349523: "oz ounce",
    },
    "time": {
        1.0: "s sec second",
        0.001: "ms millisecond",
        60.0: "min minute",
        3600.0: "h hr hour",
        86400.0: "day",
        604800.0: "week",
        31557600.0: "yr year",
        2629800.0: "month",
    },
    "angle": {1.0: "° degree deg", 57.29577951308232: "rad radian"},
    "dollar": {1.0: "$ dollar usd us$ buck", 0.01: "¢ cent"},
    "volume": {0.001: "l liter litre", 1e-6: "ml milliliter millilitre cc", 0.003785411784: "gallon gal"},
    "force": {1.0: "N newton", 1000.0: "kN kilonewton"},
    "energy": {1.0: "J joule", 1000.0: "kJ kilojoule", 4.184: "cal calorie"},
    "power": {1.0: "W watt", 1000.0: "kW kilowatt"},
    "voltage": {1.0: "V volt"},
    "current": {1.0: "A ampere amp", 0.001: "mA milliampere"},
    "resistance": {1.0: "Ω ohm Ω"},
    "pressure": {1.0: "Pa pascal", 1000.0: "kPa kilopascal"},
    "frequency": {1.0: "Hz hertz"},
    "amount": {1.0: "mol mole"},
    "data": {1.0: "GB gigabyte", 0.001: "MB megabyte", 1e-6: "KB kB kilobyte"},
    "celsius": {1.0: "°C celsius degrees_celsius degree_celsius"},
    "fahrenheit": {1.0: "°F fahrenheit degrees_fahrenheit degree_fahrenheit"},
    "kelvin": {1.0: "K kelvin"},
    "pound": {1.0: "£ pound gbp lb lbs"},  # of money or of weight: the word does not tell
    "euro": {1.0: "€ euro eur"},
    "yen": {1.0: "¥ yen jpy"},
}
_SIZES = [(kind, factor, names) for kind, sizes in _TABLE.items() for factor, names in sizes.items()]
_KNOWN = {name: (kind, factor) for kind, factor, names in _SIZES for name in names.split()}
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
    over, *under = text.strip().split("/")
    kinds: dict[str, int] = {}
    factor = 1.0
    for sign, part in [(1, over), *((-1, part) for part in under)]:
        for word in re.split(r"[ ·*]+", part.strip()):
            match = _ONE.fullmatch(word)
            kind, size = _named(match["name"]) if match else (None, 1.0)
            if kind is None:
                return None
            power = sign * int(match["power"] or 1)
            factor *= size**power
            kind, power = ("length", 3 * power) if kind == "volume" else (kind, power)
            kinds[kind] = kinds.get(kind, 0) + power
    return Unit(tuple(sorted(kinds.items())), factor)


def _named(name: str) -> tuple[str | None, float]:
    for spelling in (name, *((name.lower(), name.lower().removesuffix("s")) if len(name) > 1 else ())):
        if spelling in _KNOWN:
            return _KNOWN[spelling]
    return None, 1.0
