"""Rows of the mixture's sources as questions with answers that can be verified.

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
"""Why a turn is no question of ours, from the first check to the last."""

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
    """A question that the verifier can judge answers to."""

    text: str  # without choices and instructions
    choices: list[str] | None
    answer: str  # for choices the letter
    answer_type: str  # choice, number, text or expression
    context: str = ""  # what stands before the question in the prompt


Reading = Question | str  # or one of REASONS


def read_row(reader: str, row: Mapping[str, Any], order: Callable[[str], Any] = str) -> Iterator[Reading]:
    """Yield all questions of a row of a source with this `reader`: each a `Question` or the reason why it is none.

    Args:
        reader: conversations, chartqa or scienceqa.
        row: the columns of the source, see `sources`.
        order: sorts the turns of a conversation by their text; those after the one that is taken are never read.
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
    """The question in these two texts."""
    split = split_question(question)
    if split is None:
        return "no_question"
    text, choices = split
    answer = read_reply(reply, choices)
    return "no_answer" if answer is None else verifiable(text, choices, answer)


def read_reply(reply: str, choices: list[str] | None) -> str | None:
    """The answer in a reply: with choices the letter of the one that it names; None where none can be read."""
    if not choices:
        return _open_answer(reply)
    for answer in _statements(reply):
        letters = _letters(answer, choices)
        if letters:
            return letters[0] if len(letters) == 1 else None
    return None


def verifiable(text: str, choices: list[str] | None, answer: str, *, relaxed: bool = False) -> Reading:
    """The question, where the verifier takes its answer for right, and the text of a right choice for that choice."""
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
    """The question of a row of HuggingFaceM4/ChartQA: query, and label, a list with one text in it."""
    question, labels = (row["query"] or "").strip(), row["label"] or []
    if not question:
        return "no_question"
    if not any(labels):
        return "no_answer"
    if len(labels) > 1:  # all of them, or any of them? The card does not say.
        return "not_verifiable"
    return verifiable(question, None, undecorated(labels[0]), relaxed=True)


def read_scienceqa(row: Mapping[str, Any]) -> Reading:
    """The question of a row of derek-thomas/ScienceQA, after its hint; `answer` is the right choice's place."""
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
    """What the reply says to be the answer, the plainest statement first."""
    stated = None
    if r"\boxed" not in reply:
        for stated in _STATED.finditer(_last_line(reply)):  # noqa: B007  the last one
            pass
    found = [] if stated is None else [undecorated(stated.string[stated.end() :])]
    return [text for text in dict.fromkeys([*found, *find_answer(reply)]) if text]


def _letters(answer: str, choices: list[str]) -> list[str]:
    """The letters of the choices that `answer` names."""
    text, letters = f"<answer>{answer}</answer>", string.ascii_uppercase[: len(choices)]
    if answer in tuple(letters):
        return [answer]  # as the verifier has it, at a tenth of the time
    return [letter for letter in letters if judge(text, letter, "choice", choices) == 1.0]


def _open_answer(reply: str) -> str | None:
    """The answer to a question without choices: yes or no, a number, a formula, or few words; from prose a number."""
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
    """Whether words or a formula are the answer itself, and not a sentence that has it somewhere."""
    words = len(answer.split())
    if _NUMERAL.search(answer) and stated and infer_type(answer) == "expression":
        return True
    is_sentence = line.endswith(".") and words > 1 and not stated
    return _ANSWER_FIRST.match(line) is not None or (words <= 3 and not is_sentence and not _NUMERAL.search(answer))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _number_of_the_last_sentence(line: str) -> str | None:
    """The one number of the last sentence; None where it has none, several, or a formula."""
    sentence = re.split(r"(?<=[.!?])\s+", line)[-1]
    numerals = list(_NUMERAL.finditer(sentence))
    if len(numerals) != 1 or _FORMULA.search(sentence):
        return None
    start, end = numerals[0].span()
    if not _BEFORE.search(sentence[:start]) or not _AFTER.match(sentence, end):
        return None
    answer = numerals[0][0].rstrip(",")
    return answer if read_quantity(answer) is not None else None
