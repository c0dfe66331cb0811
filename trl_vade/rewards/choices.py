"""The choice that an answer names: by its letter, by its text, or by both."""

import re
import string
from collections.abc import Sequence
from dataclasses import replace

from .answers import HEDGE, SAYS, undecorated
from .notation import plain, same_text
from .quantities import Quantity, equal, only_number, read_closed

# ASCII keeps the Turkish dotted I, which is no letter of a choice, out of [a-z] in any case.
_LETTER = re.compile(r"(?:(?:option|choice)\s+)?[(\[{]?\s*([a-z])\s*[)\]}]?\s*[.:)]?", re.IGNORECASE | re.ASCII)
_LABEL = re.compile(  # a letter in front of the rest; a and I may be words
    r"[\s*#'(-]*(?:(?i:option|choice|answer)\b[\s:#-]*)?"
    r"(?:[(\[{]\s*([A-Za-z])\s*[)\]}]|([B-HJ-Z])(?![\w']|\s*[=<>+*/^])|([a-zA-Z])(?:(?=\s*[.:),;(]|\s+-|\s*$)|(?=\s+is\b)))",
    re.ASCII,
)
# `A is a predator` is no choice
_DENIED = r"\W{0,3}(?:(?:(?:is|was)\s+)?(?:not|wrong|incorrect|false)|isn't|is\s+an?)\b"
_REMARK = re.compile(
    r"\W*[a-z]\)?\s+is\s+(?!(?:(?:the|my)\s+)?(?:right|correct|best|answer|option)\b)", re.IGNORECASE | re.ASCII
)
_OPTION = re.compile(  # `option B`, `the answer is B`
    rf"\b(?i:(?:option|choice|answer|letter)(?:\s+{SAYS})?)\W{{1,3}}([A-Z])(?![\w'])(?!(?i:{_DENIED}))", re.ASCII
)
_BRACKETED = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]", re.ASCII)
_LONE = re.compile(r"(?<![\w'])([B-HJ-Z]|[AI](?=\W*$|\s*[.:),;/|&(\-]|\s+(?:or|and)\b|\s+[A-Z]\b))(?![\w'])", re.ASCII)
_OWN_LETTER = re.compile(r"\s*[(\[]?([a-z])[)\].:]+\s*(\S.*)", re.IGNORECASE | re.ASCII | re.DOTALL)
_GONE = " \ufffc "  # stands where the text of a choice was
_SUBJECT = re.compile(rf"(?:^|[,:]|\bthe\b)\s*{_GONE.strip()}\s+(?:is|are|was|were|has|have)\b", re.IGNORECASE)
_BEFORE = r"\bof|\bthan|\bfrom|\blike|\bnear|close to|next to|similar to|\bon|\bwith|\bby|\bthe|\ba|\ban|\s"
_NO_OBJECT = "".join(f"(?<!{word})" for word in _BEFORE.split("|"))
_OBJECT = re.compile(rf"{_NO_OBJECT}(?: the| an?)?\s*{_GONE.strip()}\s*(?:each other)?[\s.!]*$")
_DECORATION = re.compile(r"\*+|[$`]|\\[()]|\\(?:text|textbf|mathrm|mathbf|bold)\s*\{([^{}]*)\}")


def without_letters(choices: Sequence[str]) -> list[str]:
    """Return choices without the letters that each begins with in their order: `A. grass`, `(B) sky`."""
    found = [_OWN_LETTER.fullmatch(choice) for choice in choices]
    own = all(match and _index(match[1]) == place for place, match in enumerate(found) if choices[place])
    texts = [match[2] if match else "" for match in found]
    return texts if own and len({*texts} - {""}) == sum(map(bool, texts)) else [*choices]


def chosen(readings: Sequence[str], choices: Sequence[str]) -> int | None:
    """Return the number of the one choice that an answer names, from 0; None for none, for several and for doubt.

    `readings` are of `answers.find_answer`, and `choices` texts; [] if only letters are known.
    """
    if not readings:
        return None
    whole = _DECORATION.sub(r"\1", readings[0]).strip()
    named = [reading for place, reading in enumerate(readings) if not (place and _REMARK.match(reading))]
    labels = {_label(reading, choices) for reading in named} - {None}
    labels |= {_index(letter) for reading in readings for letter in _OPTION.findall(reading)}
    for reading in readings:
        index = exactly(reading, choices)
        if index is not None:
            own = {_label(reading, choices)} if reading in choices else set()  # `(b)` may be a text
            return index if labels - own <= {index} else None
    texts, rest = _texts_in(whole, choices)
    if HEDGE.search(rest):
        return None
    bracketed = {_index(letter) for letter in _BRACKETED.findall(rest)}
    beside = {exactly(part.strip(" .:),;-("), choices) for part in (_LABEL.sub("", whole), _BRACKETED.sub("", whole))}
    number = only_number(whole)
    texts |= {*_of_value(number, choices)}
    named = {_index(letter) for letter in _LONE.findall(rest)} | texts | bracketed | labels | (beside - {None})
    words = any(any(map(str.isalpha, choices[index])) for index in texts)
    said = _SUBJECT.search(rest) or _OBJECT.search(rest) if words else texts and number
    told = labels or bracketed or said
    return named.pop() if told and len(named) == 1 and max(named) < (len(choices) or 26) else None


def exactly(text: str, choices: Sequence[str]) -> int | None:
    """Return the number of the choice that `text` is, as a letter, as its text or as its value alone."""
    if len(text) > 1 and choices.count(text) == 1:
        return choices.index(text)
    letter = _LETTER.fullmatch(_DECORATION.sub(r"\1", text).strip())
    if letter and _index(letter[1]) < (len(choices) or 26):
        return _index(letter[1])
    same = [index for index, choice in enumerate(choices) if same_text(text, choice) or same_text(choice, text)]
    same = same or _of_value(read_closed(text), choices)
    same = same or [index for index, choice in enumerate(choices) if _tight(text) == _tight(choice)]
    return same[0] if len(same) == 1 else None


def labelled(text: str) -> int | None:
    """Return the number of the letter that `text` is, or that stands before it in brackets: `B`, `(B)`, `B) 12`."""
    match = re.fullmatch(r"\(?([A-H])(?:[.:]|\)[.:]?(?:\s*\S.*)?)?", text, re.ASCII | re.DOTALL)
    return _index(match[1]) if match else None


def _label(text: str, choices: Sequence[str]) -> int | None:
    text = _DECORATION.sub(r"\1", text).strip()
    match = _LABEL.match(text)
    letter = match and not re.match(_DENIED, text[match.end() :], re.IGNORECASE) and (match[1] or match[2] or match[3])
    return _index(letter) if letter and _index(letter) < (len(choices) or 26) else None


def _texts_in(sentence: str, choices: Sequence[str]) -> tuple[set[int], str]:
    """Return the choices whose texts stand in `sentence`, and what is left of it without them."""
    found = set()
    for index in sorted(range(len(choices)), key=lambda one: -len(choices[one])):
        text = _DECORATION.sub(r"\1", undecorated(choices[index])).strip()
        if len(text) > 1 or text.isdigit():
            pattern = re.compile(rf"(?<![\w√\\^.-]){re.escape(text)}(?![\w√\\^]|\.\d)", re.IGNORECASE)
            sentence, count = pattern.subn(_GONE, sentence)
            found |= {place for place, one in enumerate(choices) if one == choices[index]} if count else set()
    return found, sentence


def _of_value(value: Quantity | None, choices: Sequence[str]) -> list[int]:
    values = [] if value is None else [read_closed(undecorated(choice)) for choice in choices]
    return [index for index, one in enumerate(values) if one and value and equal(value, replace(one, fraction=True))]


def _tight(text: str) -> str:
    return "".join(plain(undecorated(text)).split())


def _index(letter: str) -> int:
    return string.ascii_uppercase.index(letter.upper())
