"""Two texts of the same words."""

import functools
import re

from .answers import undecorated

_SUBSCRIPTS = {0x2080 + i: str(i) for i in range(10)}  # of H₂O
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_FIRST = re.compile(r"(yes|no|true|false)\s*[,.;:!]", re.IGNORECASE)
_RULES = [
    (re.compile(r"\.(?!\d)"), ""),  # p.m., U.S., Dr.
    (re.compile(r"(?<=\d)\s*([-:,])\s*(?=\d)"), r"\1"),
    (re.compile(r"(?<=\d)\s+to\s+(?=\d)"), "-"),
    (re.compile(r"(?<=\d)\s+(?=[ap]m\b)"), ""),
    (re.compile(r"\\text\{([^{}]*)\}|_(?=\d)"), r"\1"),
]


@functools.lru_cache(maxsize=4096)
def normalised_text(text: str) -> str:
    """Return `text` without decoration, case, a leading article, outer brackets, full stops and final punctuation."""
    text = " ".join(undecorated(text).translate(_SUBSCRIPTS).casefold().split())
    for _ in range(5):
        before = text
        text = text.rstrip(".,;:!?").strip()
        if len(text) > 2 and _PAIRS.get(text[0]) == text[-1]:
            text = text[1:-1].strip()
        if text == before:
            break
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    article, _, rest = text.partition(" ")
    return rest if article in ("a", "an", "the", "in", "on", "at") and rest else text


def same_text(answer: str, reference: str) -> bool:
    """Return whether both are the same words, or `answer` begins with the yes or no that the reference is."""
    expected = normalised_text(reference)
    if normalised_text(answer) == expected:
        return True
    first = _FIRST.match(answer)
    if first is None or first[1].casefold() != expected:
        return False
    others = {"yes", "no", "true", "false"} - {expected}
    rest = answer[first.end() :].casefold()
    return not (others & set(re.findall(r"[a-z]+", rest)) or re.search(r"\bor\b|\?|maybe", rest))
