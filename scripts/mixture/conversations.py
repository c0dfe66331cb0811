"""Read questions with verifiable answers from the rows of the mixture's sources.

A row of LLaVA-OneVision-Data is a conversation about one image: turns of `human` and `gpt`, often many (figureqa and
ai2d ask all questions about an image in one row). Replies are a letter ("C", "Answer: B", "the answer is: C."), a
number ("The answer is $38.51"), "Yes."/"No.", or prose: tabmwp(cauldron) has the worked solution, whose last sentence
gives the number.
"""

import itertools
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trl_vade.rewards.answers import find_answer, undecorated
from trl_vade.rewards.quantities import read_quantity
from trl_vade.rewards.verifiers import infer_type, judge, normalised_text

from .question_text import split_question

REASONS = ("no_question", "no_answer", "not_verifiable")
"""Why a turn is not usable, in the order of the checks."""

_STATED = re.compile(r"\b(?:answer|option|choice)\s*(?:is\s*:?|:|=)\s*", re.IGNORECASE)

_ANSWER_FIRST = re.compile(r"(?:the\s+)?(?:(?:final|correct)\s+)?answer\s*(?:is\b|:)", re.IGNORECASE)

_YES_NO = re.compile(r"(yes|no)(?:[.,;:!]|$)", re.IGNORECASE)

_LETTER = re.compile(r"\(?[A-H]\)?")

_NUMERAL = re.compile(r"-?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")

_BEFORE = re.compile(r"(?:^|[\s(=≈:])$")

_AFTER = re.compile(r"(?:[.,;:!?)]|°|\s(?!(?:hundred|thousand|million|billion|trillion|dozen|half|quarters?)\b)|$)")

_FORMULA = re.compile(r"[\\√π^]")


@dataclass(frozen=True)
class Question:
    """A question whose answers the verifier can judge."""

    text: str  # without choices and instructions
    choices: list[str] | None
    answer: str  # the letter, if there are choices
    answer_type: str  # choice, number, text or expression
    context: str = ""  # text in front of the question in the prompt


Reading = Question | str  # or one of REASONS


def read_row(reader: str, row: Mapping[str, Any], order: Callable[[str], Any] = str) -> Iterator[Reading]:
    """Yield each question of a row, as a `Question` or as the reason why it is not usable.

    Args:
        reader: conversations, chartqa or scienceqa.
        row: the columns of the source, see `sources`.
        order: sort key of the text of a turn. Turns after the one that the caller takes are not read.
    """
    if reader == "conversations":
        yield from read_conversation(row["conversations"] or [], order)
    else:
        yield {"chartqa": read_chartqa, "scienceqa": read_scienceqa}[reader](row)


def read_conversation(turns: list[Mapping[str, str]], order: Callable[[str], Any] = str) -> Iterator[Reading]:
    """Yield one entry for each turn of `human` that `gpt` replies to."""
    texts = [
        (human["value"] or "", gpt["value"] or "")
        for human, gpt in itertools.pairwise(turns)
        if human["from"] == "human" and gpt["from"] == "gpt"
    ]
    for question, reply in sorted(texts, key=lambda pair: order("\0".join(pair))):
        yield read_turn(question, reply)


def read_turn(question: str, reply: str) -> Reading:
    """Read the question in a turn of `human` and the reply of `gpt`."""
    split = split_question(question)
    if split is None:
        return "no_question"
    text, choices = split
    answer = read_reply(reply, choices)
    return "no_answer" if answer is None else verifiable(text, choices, answer)


def read_reply(reply: str, choices: list[str] | None) -> str | None:
    """Read the answer in a reply, for choices the letter of the one it names; None if no answer can be read."""
    if not choices:
        return _open_answer(reply)
    for answer in _statements(reply):
        letters = _letters(answer, choices)
        if letters:
            return letters[0] if len(letters) == 1 else None
    return None


def verifiable(text: str, choices: list[str] | None, answer: str, *, relaxed: bool = False) -> Reading:
    """Return the question if the verifier accepts its answer, and the text of the right choice, as right."""
    if choices is None and _LETTER.fullmatch(answer):
        return "not_verifiable"  # the letter of a choice that is not in the text
    kind = infer_type(answer, choices)
    texts = [answer]
    if choices:
        right = choices[string.ascii_uppercase.index(answer)]
        if list(map(normalised_text, choices)).count(normalised_text(right)) > 1:
            return "not_verifiable"
        texts.append(right)  # it may be the letter of another choice
    if any(judge(f"<answer>{text}</answer>", answer, kind, choices, relaxed=relaxed) != 1.0 for text in texts):
        return "not_verifiable"
    return Question(text, choices, answer, kind)


def read_chartqa(row: Mapping[str, Any]) -> Reading:
    """Read a row of HuggingFaceM4/ChartQA: its query, and its label, a list with one text."""
    question, labels = (row["query"] or "").strip(), row["label"] or []
    if not question:
        return "no_question"
    if not any(labels):
        return "no_answer"
    if len(labels) > 1:  # the card does not say whether all or any of them are right
        return "not_verifiable"
    return verifiable(question, None, undecorated(labels[0]), relaxed=True)


def read_scienceqa(row: Mapping[str, Any]) -> Reading:
    """Read a row of derek-thomas/ScienceQA: the hint is the context, and `answer` the place of the right choice."""
    question, choices = (row["question"] or "").strip(), [choice.strip() for choice in row["choices"] or [] if choice]
    place, hint = row["answer"], (row["hint"] or "").strip()
    if not question:
        return "no_question"
    if not 2 <= len(choices) <= 26 or len(choices) < len(row["choices"]):
        return "not_verifiable"
    if place is None or not 0 <= place < len(choices):
        return "no_answer"
    reading = verifiable(question, choices, string.ascii_uppercase[place])
    return reading if isinstance(reading, str) else replace(reading, context=hint)


def _statements(reply: str) -> list[str]:
    """Return the texts that the reply states as its answer, the plainest first."""
    stated = None
    if r"\boxed" not in reply:
        for stated in _STATED.finditer(_last_line(reply)):  # noqa: B007  the last one
            pass
    found = [] if stated is None else [undecorated(stated.string[stated.end() :])]
    return [text for text in dict.fromkeys([*found, *find_answer(reply)]) if text]


def _letters(answer: str, choices: list[str]) -> list[str]:
    """Return the letters of the choices that `answer` names."""
    text, letters = f"<answer>{answer}</answer>", string.ascii_uppercase[: len(choices)]
    if answer in tuple(letters):
        return [answer]  # the result of the verifier, in a tenth of the time
    return [letter for letter in letters if judge(text, letter, "choice", choices) == 1.0]


def _open_answer(reply: str) -> str | None:
    """Read an answer without choices: yes or no, a number, a formula, or few words; from prose a number."""
    line = _last_line(reply)
    stated = r"\boxed" in reply or _STATED.search(line) is not None
    answer = next(iter(_statements(reply)), "") if stated or line == reply.strip() else ""
    yes_no = _YES_NO.match(answer)
    if yes_no:
        return yes_no[1].capitalize()
    if answer and (read_quantity(answer) is not None or _is_plain(answer, line, stated)):
        return answer
    return _number_of_the_last_sentence(undecorated(line))


def _is_plain(answer: str, line: str, stated: bool) -> bool:
    """Tell whether words or a formula are the answer itself, and not a sentence that contains it."""
    words = len(answer.split())
    if _NUMERAL.search(answer) and stated and infer_type(answer) == "expression":
        return True
    is_sentence = line.endswith(".") and words > 1 and not stated
    return _ANSWER_FIRST.match(line) is not None or (words <= 3 and not is_sentence and not _NUMERAL.search(answer))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _number_of_the_last_sentence(line: str) -> str | None:
    """Return the only number of the last sentence; None if it has none, several, or a formula."""
    sentence = re.split(r"(?<=[.!?])\s+", line)[-1]
    numerals = list(_NUMERAL.finditer(sentence))
    if len(numerals) != 1 or _FORMULA.search(sentence):
        return None
    start, end = numerals[0].span()
    if not _BEFORE.search(sentence[:start]) or not _AFTER.match(sentence, end):
        return None
    answer = numerals[0][0].rstrip(",")
    return answer if read_quantity(answer) is not None else None
