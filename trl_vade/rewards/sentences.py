"""The number that a sentence says."""

import re

from .notation import plain
from .number_words import SPELLED, fractions_in_digits
from .quantities import CURRENCY, NUMERAL, Quantity, read_quantity

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
    r"sin|cos|tan|exp|sqrt|pi|but|given|know|says?|shown|let|must|need to)\b",
    re.IGNORECASE,
)


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
