r"""The answer in a completion: in `<answer>`, in `\boxed{}`, or on the last line; and text without its decoration.

All functions scan a text once: a policy would find texts on which backtracking or a recursive parser fails.
"""

import functools
import re
import unicodedata

LONGEST_ANSWER = 1000  # The largest length of an answer, in characters. A longer answer is wrong.

_any_case = functools.partial(re.compile, flags=re.IGNORECASE)
_THINK = re.compile("<(/?)think>", re.IGNORECASE | re.ASCII)
_TAG = re.compile("<(/?)answer>", re.IGNORECASE | re.ASCII)
_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\{` is a visible brace and opens no group
_HENCE = "so|thus|hence|therefore"
SAYS = r"(?:is|are|should be|must be)"
_LEAD = _any_case(
    rf"^[*#\s]*(?:(?:{_HENCE}|and|then|now)\b[,:\s]+)*(?:i (?:would )?(?:choose|pick|select|say)\s+|"
    r"(?:the\s+|my\s+)?(?:(?:final|correct|right|best)\s+)*(?:answer|option|choice)[*\s]*"
    rf"(?:{SAYS}(?:\s+(?:thus|therefore|then))?\s*:?|:|=|\s-\s)[*\s]*)?(?=\S)"
)
_SAYING = rf"\b(?:answer|option|choice)\W{{0,3}}(?:{SAYS}\b(?!\s+not\b)|:|=)|答案\s*[是为:]"
_STATED = _any_case(rf"{_SAYING}|^\W*[A-Z]\W*$")  # or a letter alone
_STATED_ALONE = _any_case(rf"(?:{_SAYING})[\s*:$]*$")
_TAIL = _any_case(
    r"\b(?:is|are|was|were|be|will|equals|measures|gives us|gives|it's|choose|select|pick|go with)\b"
    rf"(?:\s+(?:therefore|thus|equal to|made of)\b)?\s*:?|,\s*(?:{_HENCE})\b,?|(?<!不)[是为选]\s*:?|答案:"
    r"|(?<=[a-z]{3}):(?=\s)"  # not `B: Paris`, 10:30
)
_SUBJECT = _any_case(r"^([^.=:]{1,80}?)\s+(?:(?:is|are|was|were|has|have|had)\s+the\s|is (?:correct|right))")
_DOUBT = _any_case(
    r"\b(?:or|nor|neither|either|if|whether|unless|may|might|could|maybe|perhaps|possibly|possible|except|instead|"
    r"suppose|assume|doubt|unsure|unclear|unlikely)\b|\?|或|可能"
)
HEDGE = _any_case(
    rf"{_DOUBT.pattern}|\b(?:not|no|never|cannot|can't|without|wrong|incorrect|false)\b|n't\b|\\lor\b|\\vee\b|不"
)
_ANEW = _any_case(r"\b(?:wait|hmm|actually|sorry|correction|mistake)\b|(?:^|(?<=[.!?] ))(?:no|however|but|let me)\b")
_RETRACTION = _any_case(rf"{HEDGE.pattern}|\b(?:wait|actually|however|but|mistake|sorry|correction)\b")
_EXPLAINED = _any_case(r"\W*(?:explanation|reason(?:ing)?|because|justification|rationale|note)\b")
_CONCLUDED = _any_case(rf"\W*(?:{_HENCE})\b[^?]*(?:\d|\b(?:it|this|that)(?: is|'s)\b)")
_SO = _any_case(rf",\s*(?:{_HENCE})\s")
_CLAUSE = _any_case(rf"[;,]\s+(?!that\b)|\b(?:{_HENCE})\s")
_REASON = re.compile(
    r",?\s+(?:because|since|given that|due to)\b|(?<=\b[A-Z])\s+as\b(?! well| in\b)|,\s*因为|"
    r",\s+(?:as(?! well)|which|where|not(?! sure| exactly)|with (?:an?|the|about|\$?\d+))\b"
)
SENTENCE_END = re.compile(
    rf"(?<=[^\s.(*][^\s.(*][.!?])\s+(?=[A-Z0-9$\\(*])|;\s+(?=(?:{_HENCE}|it|the|this|that|no|not)\b)|"
    r"(?<=\s[A-Z]\.)\s+(?=[A-Z][a-z]+\b[^.]*\b(?:is|answer)\b)"  # not that of a letter in front: `B. Paris`
)
_NO_CONTENT = " \t*`$#_-()[]\\"
_LISTED = re.compile(r"\W*[A-Z](?:[.):]\s|\W*$)")  # `A. oak`, as a prompt lists its choices
_WRAPPERS = [("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), *((mark, mark) for mark in ("**", *"*`\"'"))]
_NUMBER_WITH_MARK = re.compile(r"\s*-?[\d.,/]+\?\s*")
_NAMED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|bold)\s*\{")
_PLAIN = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x2010 + i: "-" for i in range(6)} | {0x2212: "-"}
_PLAIN |= {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2236: ":", 0x3000: " ", 0x3002: "."}
_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)|(?<=\S)\*\*(?!\w)")


def find_answer(completion: str) -> list[str]:
    r"""Return the readings of the answer in `completion`, without decoration: mostly one text; [] for no answer.

    After the thinking, it is the last `\boxed{}`, else all of `<answer>`, else the line that states it, else the last
    line. If that is a sentence, its parts are readings, too; they are no second guess.
    """
    text = _after_thinking(completion)
    tagged = _in_tags(text)
    text = _BOLD.sub("", (text if tagged is None else tagged).translate(_PLAIN))
    content = _unboxed(text)
    if content is None:
        content = _stated_line(text) if tagged is None else text
    if len(content) > LONGEST_ANSWER:
        return []
    if (tagged is not None or _BOX.search(text)) and _NUMBER_WITH_MARK.fullmatch(content):
        content = content.rstrip(" ?\n")
    readings = dict.fromkeys(map(_without_lead, _parts(content)))
    return [reading for reading in readings if reading and not reading.endswith("?")]


def reference_in(text: str) -> str:
    """Return a reference without the dress of its data set: `<answer>5</answer>`, `#### 5`, "The answer is 5."."""
    text = text.rpartition("####")[2]
    for inside in (_in_tags, _unboxed):
        content = inside(text)
        text = text if content is None else content
    return _without_lead(text)


def tagged_answer(completion: str) -> str:
    """Return the content of the last `<answer>` after the thinking, "" if it is not closed, or all text without it."""
    text = _after_thinking(completion)
    tagged = _in_tags(text)
    return text if tagged is None else tagged.strip()


def _without_lead(text: str) -> str:
    return undecorated(_LEAD.sub("", undecorated(text), count=1))


@functools.lru_cache(maxsize=4096)
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
    *_, last = None, *_THINK.finditer(text)
    return text if last is None else text[last.end() :] if last[1] else ""


def _in_tags(text: str) -> str | None:
    """Return the content of the last `<answer>`; "" if it is not closed, None without one."""
    *_, opened = None, *(tag for tag in _TAG.finditer(text) if not tag[1])
    closed = _TAG.search(text, opened.end()) if opened else None
    return opened and (text[opened.end() : closed.start()] if closed else "")


def _unboxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}`; "" if it is not closed, None without one."""
    *_, box = None, *_BOX.finditer(text)
    end = _closing(text, box.end()) if box else None
    return box and ("" if end is None else text[box.end() : end])


def _closing(text: str, start: int) -> int | None:
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return None


def _stated_line(text: str) -> str:
    """Return the line with the answer: the last one that says so and is not taken back, else the last one."""
    lines = [line for line in text.splitlines() if line.strip(_NO_CONTENT)]
    if not lines or (len(lines) > 1 and _listed(*lines[-2:])):
        return ""
    stated = _stated(lines)
    return lines[min(stated + 1, len(lines) - 1)] if _STATED_ALONE.search(lines[stated]) else lines[stated]


def _listed(line: str, other: str) -> bool:  # `A. oak`, or `Paris is the capital of ...` for each choice
    words, others = line.split(), other.split()
    alike = len(words) > 3 and words[0] != others[0] and words[1:4] == others[1:4]
    return alike or bool(_LISTED.match(line) and _LISTED.match(other))


def _stated(pieces: list[str]) -> int:
    """Return the place of the last piece that states or concludes an answer, or of the last if that is taken back."""
    stated = max((place for place, piece in enumerate(pieces) if _STATED.search(piece)), default=None)
    later = [] if stated is None else pieces[stated + 1 :]
    reasons = next((place for place, piece in enumerate(later) if _EXPLAINED.match(piece)), len(later))
    if stated is None or _RETRACTION.search(" ".join(later[:reasons])[: 2 * LONGEST_ANSWER]):
        return len(pieces) - 1
    return stated + max((place for place, piece in enumerate(later, 1) if _CONCLUDED.match(piece)), default=0)


def _parts(content: str) -> list[str]:
    """Return a text and, unless in doubt, its sentence (first if it states the answer), that one's end and subject."""
    sentences = SENTENCE_END.split(content.strip())
    place = _stated(sentences)
    sentence = _clause(_ended(sentences[place]))
    if "\n" in content.strip() or HEDGE.search(sentence):
        return [content]
    tails = list(_TAIL.finditer(sentence))
    subject = _SUBJECT.match(sentence) if len(tails) < 2 else None
    whole = content if sentence == _ended(content) else sentence  # `5!` keeps its mark
    parts = [whole, *(sentence[tail.end() :] for tail in tails[-1:]), *([subject[1]] if subject else ())]
    if not (sentence != _ended(sentences[place]) or _STATED.search(sentence) or _CONCLUDED.match(sentence)):
        return [content, *parts]
    told = " ".join(sentences[: place + 1])
    return [*parts, told[max((match.end() for match in _ANEW.finditer(told)), default=0) :]]


def _ended(sentence: str) -> str:
    return sentence.strip().rstrip(".*!").strip()


def _clause(sentence: str) -> str:
    """Return the part of a sentence that states the answer, without the reasons before and after it."""
    stated = [match.start() for match in _STATED.finditer(sentence)] or [m.end() for m in _SO.finditer(sentence)]
    start = max((match.end() for match in _CLAUSE.finditer(sentence, 0, (stated or [0])[-1])), default=0)
    if not _DOUBT.search(sentence[:start]):
        sentence = sentence[start:]
    reason = _REASON.search(sentence, 1)
    taken_back = reason and (HEDGE if "wh" in reason[0] else _DOUBT).search(sentence, reason.end())
    return sentence[: reason.start()] if reason and not taken_back else sentence
