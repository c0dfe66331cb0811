"""Number words as digits: `seventeen apples`, `minus four`, `one half`."""

import re

_SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_SMALL += "seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: number for number, word in enumerate(_SMALL.split())} | {"none": 0}
_WORDS |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
_NUMBER_WORD = "|".join(sorted(_WORDS, key=len, reverse=True))
SPELLED = re.compile(rf"(?P<first>{_NUMBER_WORD})(?:[ -](?P<second>{_NUMBER_WORD}))?(?P<hundred> hundred)?\b", re.I)
_PARTS = {
    "half": 2,
    "halve": 2,
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
}
_FRACTION = re.compile(
    rf"\b(?:({_NUMBER_WORD}|\d+) and )?(a(?= half)|{_NUMBER_WORD})[ -]({'|'.join(_PARTS)})s?\b", re.IGNORECASE
)


def fractions_in_digits(text: str) -> str:
    """Return `text` with two thirds as 2/3, and one and a half as 1 1/2."""
    return _FRACTION.sub(lambda m: f"{_digits(m[1] or '')} {_digits(m[2])}/{_PARTS[m[3].lower()]}".strip(), text)


def _digits(word: str) -> str:
    return "1" if word.lower() == "a" else str(_WORDS.get(word.lower(), word))


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
