"""Read questions with verifiable answers from the rows of the mixture's sources, and check each answer a second time.

A row of LLaVA-OneVision-Data is a conversation about one image: turns of `human` and `gpt`, often many (figureqa and
ai2d ask all questions about an image in one row). Replies are a letter ("C", "Answer: B", "the answer is: C."), a
number ("The answer is $38.51"), "Yes."/"No.", or prose, which `solutions` reads.
"""

import itertools
import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trl_vade.rewards.answers import find_answer, undecorated
from trl_vade.rewards.notation import normalised_text
from trl_vade.rewards.quantities import read_quantity
from trl_vade.rewards.verifiers import infer_type, judge

from .question_text import asked_kind, split_question
from .solutions import asks_number, asks_yes_no, question_sentence, read_solution, sentences, value_of

REASONS = {
    "no_question": "The text has no question, or choices that cannot be told apart.",
    "no_answer": "The reply states no answer, or several parts of it could be the answer.",
    "other_kind": "The answer is of another kind than the question, its instruction or the source asks for: a number "
    "for a name.",
    "contradiction": "Two parts of the row give different answers: the steps end in 58°, the letter stands for 32°.",
    "unmatchable": "The answer is a sentence or has many words, so a right answer would be worded otherwise.",
    "not_verifiable": "The verifier does not accept the answer itself, or also accepts another choice.",
}
"""Why a turn is not usable, in the order of the checks."""

MOST_WORDS = 5
"""The most words of an answer without choices."""

_STATED = re.compile(r"(?:\b(?:answer|option|choice)\s*(?:is\s*:?|:|=)|####)\s*", re.IGNORECASE)
_STATED_LETTER = re.compile(_STATED.pattern + r"\(?(?-i:([A-Z]))\)?(?![\w'])", re.IGNORECASE)
_ANSWER_FIRST = re.compile(r"(?:the\s+)?(?:(?:final|correct)\s+)?answer\s*(?:is\b|:)|####", re.IGNORECASE)
_YES_NO = re.compile(r"(yes|no)(?:[.,;:!]|$)", re.IGNORECASE)
_LABELLED = re.compile(r"\(?([A-Z])(?:\)|[.:])\s*(\S.*)", re.DOTALL)
_LETTER = re.compile(r"\(?[A-H]\)?(?:[.:)]\s.*)?", re.DOTALL)
_CONCLUSION = re.compile(r"\b(?:so|therefore|thus|answer)\b", re.IGNORECASE)
_VERB = re.compile(r"\b(?:is|are|was|were|has|have|had)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """A question whose answers the verifier can judge."""

    text: str  # without choices and instructions
    choices: list[str] | None
    answer: str  # the letter, if there are choices
    answer_type: str  # choice, number, text or expression
    context: str = ""  # text in front of the question in the prompt

    @property
    def kinds(self) -> set[str]:
        """The type of the answer, "yes_no" for these two words, and also "integer" for a whole number."""
        if self.answer in ("Yes", "No"):
            return {"yes_no"}
        number = read_quantity(self.answer) if self.answer_type == "number" else None
        return {self.answer_type} | ({"integer"} if number is not None and number.value.is_integer() else set())


class Dropped(Exception):
    """A turn is not usable; its argument is a name of `REASONS`."""


def read_row(
    reader: str, row: Mapping[str, Any], kinds: Collection[str], order: Callable[[str], Any] = str
) -> Iterator[Question | str]:
    """Yield each question of a row, as a `Question` or as the reason why it is not usable.

    Args:
        reader: conversations, chartqa or scienceqa.
        row: the columns of the source, see `sources`.
        kinds: the kinds of answers that the source has, see `Question.kinds`.
        order: sort key of the text of a turn. Turns after the one that the caller takes are not read.
    """
    if reader == "conversations":
        turns = sorted(read_turns(row["conversations"] or []), key=lambda turn: order("\0".join(turn)))
        readings = [lambda turn=turn: read_turn(*turn) for turn in turns]
    else:
        readings = [lambda: {"chartqa": read_chartqa, "scienceqa": read_scienceqa}[reader](row)]
    for read in readings:
        try:
            question = read()
            _keep(question.kinds & set(kinds), "other_kind")
            yield question
        except Dropped as dropped:
            yield str(dropped)


def read_turns(turns: list[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return the texts of each turn of `human` that `gpt` replies to."""
    return [
        (human["value"] or "", gpt["value"] or "")
        for human, gpt in itertools.pairwise(turns)
        if human["from"] == "human" and gpt["from"] == "gpt"
    ]


def read_turn(question: str, reply: str) -> Question:
    """Read the question in a turn of `human` and the reply of `gpt`, or raise `Dropped`."""
    split = split_question(question)
    if split is None:
        raise Dropped("no_question")
    text, choices = split
    found = verifiable(text, choices, choice_in(reply, choices) if choices else open_answer(text, reply))
    asked = asked_kind(question)
    _keep(asked is None or asked in found.kinds, "other_kind")
    return found


def verifiable(text: str, choices: list[str] | None, answer: str, *, relaxed: bool = False) -> Question:
    """Return the question if the verifier accepts its answer, and the text of the right choice, as right."""
    # The letter of a choice that is not in the text cannot be judged.
    _keep(choices is not None or not _LETTER.fullmatch(answer), "not_verifiable")
    kind = infer_type(answer, choices)
    _keep(kind != "text" or (len(answer.split()) <= MOST_WORDS and not _VERB.search(answer)), "unmatchable")
    texts = [answer]
    if choices:
        right = choices[string.ascii_uppercase.index(answer)]
        _keep(list(map(normalised_text, choices)).count(normalised_text(right)) == 1, "not_verifiable")
        texts.append(right)  # it may be the letter of another choice
    judged = [judge(f"<answer>{text}</answer>", answer, kind, choices, relaxed=relaxed) for text in texts]
    _keep(set(judged) == {1.0}, "not_verifiable")
    return Question(text, choices, answer, kind)


def read_chartqa(row: Mapping[str, Any]) -> Question:
    """Read a row of HuggingFaceM4/ChartQA: its query, and its label, a list with one text."""
    question, labels = (row["query"] or "").strip(), row["label"] or []
    _keep(question, "no_question")
    _keep(any(labels), "no_answer")
    _keep(len(labels) == 1, "not_verifiable")  # the card does not say whether all or any of them are right
    found = verifiable(question, None, undecorated(labels[0]), relaxed=True)
    asked = question_sentence(question)
    _keep(not asks_yes_no(asked) or "yes_no" in found.kinds, "other_kind")
    _keep(not re.match("how (?:many|much)", asked, re.IGNORECASE) or "number" in found.kinds, "other_kind")
    return found


def read_scienceqa(row: Mapping[str, Any]) -> Question:
    """Read a row of derek-thomas/ScienceQA: the hint is the context, and `answer` the place of the right choice."""
    question, choices = (row["question"] or "").strip(), [choice.strip() for choice in row["choices"] or [] if choice]
    place, hint = row["answer"], (row["hint"] or "").strip()
    _keep(question, "no_question")
    _keep(2 <= len(choices) <= 26 and len(choices) == len(row["choices"]), "not_verifiable")
    _keep(place is not None and 0 <= place < len(choices), "no_answer")
    found = verifiable(question, choices, string.ascii_uppercase[place])
    last = sentences(row["solution"] or "")[-1]
    words = [choice for choice in choices if len(choice) > 2]  # "A" is an article, too
    named = [choice for choice in words if re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", last, re.IGNORECASE)]
    concluded = len(named) == 1 and _CONCLUSION.search(last) and " not " not in last
    _keep(not concluded or named[0] == choices[place], "contradiction")
    return replace(found, context=hint)


def choice_in(reply: str, choices: list[str]) -> str:
    """Read the letter of the choice that the reply names, or raise `Dropped`.

    All letters that it states have to be the same, and the last step of its working may not be another choice.
    """
    for answer in _statements(reply):
        labelled = _LABELLED.fullmatch(answer)
        if labelled:
            _keep(set(_letters(labelled[2], choices)) <= {labelled[1]}, "contradiction")
        letters = _letters(answer, choices)
        if letters:
            break
    else:
        raise Dropped("no_answer")
    _keep(len(letters) == 1, "no_answer")
    others = {*_STATED_LETTER.findall(reply), *_last_step(reply, choices)}
    _keep(others <= set(letters), "contradiction")
    return letters[0]


def open_answer(question: str, reply: str) -> str:
    """Read an answer without choices: yes or no, a number, a formula, few words; from prose what `solutions` finds."""
    line = _last_line(reply)
    stated = r"\boxed" in reply or _STATED.search(line) is not None
    answer = next(iter(_statements(reply)), "") if stated or line == reply.strip() else ""
    _keep(not _STATED.fullmatch(answer), "no_answer")  # "Answer:" and nothing behind it
    yes_no = _YES_NO.match(answer)
    if yes_no:
        return yes_no[1].capitalize()
    if answer and (read_quantity(answer) is not None or _is_plain(answer, line, stated)):
        return answer
    found = read_solution(question, reply)
    if found is None:
        raise Dropped("no_answer" if asks_number(question_sentence(question)) or not reply.strip() else "other_kind")
    return found


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


def _last_step(reply: str, choices: list[str]) -> list[str]:
    """Return the letter of the choice that the working ends in, "= 58°. Therefore, the answer is: C"; [] for none."""
    stated = _STATED.search(reply)
    _, equals, result = reply[: stated.start() if stated else 0].rpartition("=")
    parts = sentences(result)
    if not equals or len(parts) > 2 or len(" ".join(parts[1:]).split()) > 4:
        return []
    # By words and values: the comparison of formulas takes 20 ms, and there are many rows.
    step, value = normalised_text(parts[0]), value_of(undecorated(parts[0]))
    letters = [
        letter
        for letter, choice in zip(string.ascii_uppercase, choices, strict=False)
        if normalised_text(choice) == step or (value is not None and value == value_of(choice))
    ]
    return letters if len(letters) == 1 else []


def _is_plain(answer: str, line: str, stated: bool) -> bool:
    """Tell whether words or a formula are the answer itself, and not a sentence that contains it."""
    has_digit, words = re.search(r"\d", answer), len(answer.split())
    if has_digit and stated and infer_type(answer) == "expression":
        return True
    is_sentence = line.endswith(".") and words > 1 and not stated
    return _ANSWER_FIRST.match(line) is not None or (words <= 3 and not is_sentence and not has_digit)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _keep(condition: Any, reason: str) -> None:
    if not condition:
        raise Dropped(reason)
