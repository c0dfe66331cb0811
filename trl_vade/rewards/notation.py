r"""One plain notation for the many spellings of numbers and formulas: `x²`, `½`, `\dfrac12`, `35º`, `5 \text{ cm}`."""

import functools
import re
import unicodedata

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
    (re.compile(r"\\(?:[,;:! ]|q?quad\b|left\b|right\b|displaystyle\b)|(?<!^)~|[\u00a0\u2009\u202f\u2007]"), " "),
    (re.compile(r"\\([%$#&])"), r"\1"),
    (re.compile(r"\\(?:text|mathrm|textrm|textbf|mathbf|mbox|rm)" + _BRACED), lambda m: f" {m[1].strip()} "),
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*(\d)\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\frac" + _BRACED + r"\s*(\d)"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\ge(?:q|qslant)?(?![a-z])|>="), "≥"),
    (re.compile(r"\\le(?:q|qslant)?(?![a-z])|<="), "≤"),
    (re.compile(r"\s+(?=\^)"), ""),
    (re.compile(r"\s+"), " "),
]


@functools.lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return `text` with ASCII digits, fractions as `1/2` or LaTeX, powers as `^{2}`, and units outside of `text`."""
    text = "".join(_character(character) for character in text.translate(_SPELLINGS))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


def _character(character: str) -> str:
    """Return a digit of any script in ASCII and `½` as ` 1/2`; a superscript is another thing."""
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    return character
