r"""The answer in a completion: in `<answer>`, in `\boxed{}`, or on the last line; and text without its decoration.

All functions scan a text once. A policy trained on this reward would find texts on which a backtracking regular
expression or a recursive parser fails.
"""

import re
import unicodedata

LONGEST_ANSWER = 1000  # The largest length of an answer, in characters. A longer answer is wrong.

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` is a visible brace and opens no group
_LEAD = re.compile(
    r"^[*\s]*(?:(?:so|thus|hence|therefore)[,\s]+)?(?:the\s+)?(?:(?:final|correct|right)\s+)*"
    r"(?:answer|option|choice)\s*(?:is\s*:?|:|=)[*\s]*(?=\S)",
    re.IGNORECASE,
)
_TAIL = re.compile(r"\b(?:is|are|equals)\s*:?|(?<=[a-z]{3}):(?=\s)|[=≈]", re.IGNORECASE)  # not `B: Paris`, 10:30
_ALTERNATIVES = re.compile(r"\bor\b", re.IGNORECASE)
_WRAPPERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), *((mark, mark) for mark in ("**", *"`\"'"))]
_NAMED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|bold)\s*\{")
_FULL_WIDTH = {0xFF01 + i: 0x21 + i for i in range(94)}
_PLAIN = _FULL_WIDTH | {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2212: "-", 0x3000: " "}


def find_answer(completion: str) -> list[str]:
    r"""Return the readings of the answer in `completion`, without decoration: usually one text; [] for no answer.

    Only the text after the last `</think>` counts. The answer is the last `\boxed{}` in the last `<answer>`, or in the
    whole text without tags. Otherwise it is all of `<answer>`, or the last line without tags. That line may be prose,
    so the text after its last "is", ":" or "=" is a second reading, unless the line has an "or". The line contains
    the second reading, so this is no second guess. A tag or brace that is never closed has no answer.
    """
    text = _after_thinking(completion)
    tagged = _in_tags(text)
    content = text if tagged is None else tagged
    boxed = _in_box(content)
    if boxed is not None:
        readings = [boxed]
    elif tagged is not None:
        readings = [tagged]
    else:
        readings = _last_line(text)
    readings = [_LEAD.sub("", undecorated(reading), count=1) for reading in readings if len(reading) <= LONGEST_ANSWER]
    return [reading for reading in dict.fromkeys(map(undecorated, readings)) if reading]


def tagged_answer(completion: str) -> str:
    """Return the content of the last `<answer>` after the thinking, "" if it is not closed, or all text without it."""
    text = _after_thinking(completion)
    tagged = _in_tags(text)
    return text if tagged is None else tagged.strip()


def undecorated(text: str) -> str:
    """Return `text` in plain characters, without outer spaces, formula marks, quotes and a full stop."""
    text = unicodedata.normalize("NFC", text.translate(_PLAIN))
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")  # zero width, or a direction
    for _ in range(10):  # limits nested decoration
        before = text
        text = text.strip()
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        for left, right in _WRAPPERS:
            inner = text[len(left) : -len(right)]
            plain = inner.replace(r"\$", "")  # a visible dollar sign
            if inner and text.startswith(left) and text.endswith(right) and left not in plain and right not in plain:
                text = inner.strip()
        named = _NAMED.match(text)
        if named and _closing(text, named.end()) == len(text) - 1:
            text = text[named.end() : -1]
        if text == before:
            break
    return text


def _after_thinking(text: str) -> str:
    folded = _lower(text)
    closed = folded.rfind("</think>")
    opened = folded.find("<think>", closed + 1)
    if opened >= 0:
        return ""
    return text if closed < 0 else text[closed + len("</think>") :]


def _in_tags(text: str) -> str | None:
    """Return the content of the last `<answer>`; "" if it is not closed, None without one."""
    folded = _lower(text)
    opened = folded.rfind("<answer>")
    if opened < 0:
        return None
    closed = folded.find("</answer>", opened)
    return "" if closed < 0 else text[opened + len("<answer>") : closed]


def _in_box(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}`; "" if it is not closed, None without one."""
    box = None
    for box in _BOX.finditer(text):  # noqa: B007  the last one
        pass
    if box is None:
        return None
    end = _closing(text, box.end())
    return "" if end is None else text[box.end() : end]


def _closing(text: str, start: int) -> int | None:
    """Return the position of the brace that closes a group opened before `start`, or None."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return None


def _last_line(text: str) -> list[str]:
    line = text.rstrip().rpartition("\n")[2].rpartition("\r")[2]
    if len(line) > LONGEST_ANSWER:
        return []
    tail = None
    for tail in _TAIL.finditer(line.rstrip().rstrip(".*")):  # noqa: B007  the last one
        pass
    return [line] if tail is None or _ALTERNATIVES.search(line) else [line, line[tail.end() :]]


def _lower(text: str) -> str:
    """Return `text` with A-Z in lower case and the same length, which `str.lower` may change."""
    return text.translate(_ASCII_LOWER)


_ASCII_LOWER = {65 + i: 97 + i for i in range(26)}
