"""Variants of a question: paraphrases, and hints that give the first steps of a solution but never the last.

An LLM is not trusted: what it writes is a paraphrase or a solution only if the checks below find nothing against it.
"""

import re
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from trl_vade.rewards.answers import find_answer
from trl_vade.rewards.functions import INSTRUCTION, RELAXED_SOURCES
from trl_vade.rewards.verifiers import judge

PARAPHRASE = (
    "Say this question in other words. Keep its meaning, every number, name, unit and formula, and about its length. "
    "A question stays a question. Do not answer it, and write nothing but the new question.\n\nQuestion:\n{question}"
)
STEPS = (
    "Here are a question and its right answer. Write a solution in 3 to 8 short steps, one on each line and numbered. "
    "Do not name the answer before the last line, which is `Answer: ` and the answer.\n\n"
    "Question:\n{question}\n\nRight answer:\n{answer}"
)
LONGEST_SOLUTION = 20_000  # characters; a longer text of an LLM is no solution in a few steps

_CHOICES = re.compile(r"\n\s*(?=(?:Choices|Options):|\(?A[.):] )")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_STEP = re.compile(r"\n+|(?<=[.!?])\s+(?=[A-Z\d\\$(])")
_MARK = re.compile(r"^\s*(?:(?:step\s*)?\d+\s*[.):]|[-*•])\s*", re.IGNORECASE)
_THOUGHT = re.compile(r"^.*</think>", re.DOTALL)
_MARKUP = re.compile(r"<(?:!doctype|html|head|body|script)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\W*(?:(?:i'?m|i am|we are|we're)?\s*(?:very |so )?(?:sorry|unable|afraid)\b|unfortunately\b|as an ai\b"
    r"|(?:i|we) (?:can(?:no|')t|can not|am not|won't|will not)\b)",
    re.IGNORECASE,
)


class Refused(Exception):
    """Why a row has no variant of a kind."""


@dataclass(frozen=True)
class Question:
    """The parts of a prompt, a text or messages. Variants change `text`, and keep the others."""

    prompt: Any
    text: str
    choices: str
    instruction: str

    @classmethod
    def of(cls, prompt, instruction=None):
        """Return the question in a text, or in the last message of the user.

        `instruction` is how the instruction at the end of the prompts begins. That of the mixture is known.
        """
        whole = prompt
        if isinstance(prompt, list):
            whole = next((message["content"] for message in reversed(prompt) if message["role"] == "user"), None)
        if not isinstance(whole, str) or not whole.strip():
            raise Refused("no single question text")
        starts = [whole.find(start) for start in (INSTRUCTION.removesuffix("."), instruction) if start]
        end = min((place for place in starts if place >= 0), default=len(whole))
        question, instruction = whole[:end].strip(), whole[end:].strip()
        found = _CHOICES.search(question)
        cut = found.start() if found else len(question)
        return cls(prompt, question[:cut].strip(), question[cut:].strip(), instruction)

    @property
    def whole(self):
        """The text and its choices."""
        return "\n".join(filter(None, (self.text, self.choices)))

    def with_text(self, text):
        """Return the prompt with `text` in place of the text."""
        return self.with_whole("\n".join(filter(None, (text, self.choices))))

    def with_whole(self, text):
        """Return the prompt with `text` in place of the text and the choices."""
        text = "\n\n".join(filter(None, (text, self.instruction)))
        if isinstance(self.prompt, str):
            return text
        place = max(number for number, message in enumerate(self.prompt) if message["role"] == "user")
        return [*self.prompt[:place], self.prompt[place] | {"content": text}, *self.prompt[place + 1 :]]


class Answer:
    """The right answer of a row, and whether a text gives it away."""

    def __init__(self, row, column):
        value = row.get(column)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        # A list of several answers counts as none: a hint could hold any of them.
        text = str(value).rpartition("####")[2].strip() if isinstance(value, str | int | float) else ""
        if "\n" in text or "\\boxed" in text or "<answer>" in text:  # a whole solution
            text = next(reversed(find_answer(text)), "")
        choices = row.get("choices")
        self.text, self.type, self.relaxed = text, row.get("answer_type"), row.get("source") in RELAXED_SOURCES
        self.choices = [*map(str, choices)] if isinstance(choices, list) and choices else None

    def is_right(self, text):
        """Return whether the verifier of the rewards reads the answer in `text`."""
        return judge(text, self.text, self.type, self.choices, relaxed=self.relaxed) == 1.0

    def is_told(self, text):
        """Return whether `text` gives the answer away: as a word, as a number, or as the verifier reads it."""
        place = ascii_uppercase.find(self.text.upper()) if len(self.text) == 1 else -1
        right = [self.text, *(self.choices[place : place + 1] if self.choices and place >= 0 else ())]
        numbers = [] if self.choices else _NUMBER.findall(text)
        return any(_tells(text, one) for one in right) or any(map(self.is_right, [text, *numbers]))


def paraphrase(question, answer, reply):
    """Return the text of a reply to `PARAPHRASE`, or raise `Refused` with what speaks against it."""
    text, before = said(reply), question.text
    if _lost_numbers(before, text):
        raise Refused("lost a number")
    if len(text) > 2 * max(len(before), 40):
        raise Refused("too long")
    if "?" in before and "?" not in text:
        raise Refused("no question")
    words = _words(before)
    if words and len(words & _words(text)) < 0.2 * len(words):
        raise Refused("about something else")
    if text.split() == before.split():
        raise Refused("equal to the original")
    if answer.is_told(text) and not answer.is_told(before):
        raise Refused("tells the answer")
    return text


def solution(answer, reply):
    """Return the steps of a reply to `STEPS`, or raise `Refused` if they do not reach the answer."""
    steps = steps_of(said(reply))
    if not steps or not answer.is_right(steps[-1]):
        raise Refused("the steps do not reach the answer")
    return steps


def steps_of(text):
    """Return the steps of a solution: its lines and sentences, without numbers and bullets in front.

    GSM8K's notes of a calculator, `<<3*4=12>>`, and its last line, `#### 12`, are left out.
    """
    text = re.sub(r"<<.*?>>", "", text.split("####")[0])
    steps = [_MARK.sub("", step).strip() for step in _STEP.split(text)]
    return [step for step in steps if any(map(str.isalnum, step))]


def with_hint(question, answer, steps, level, levels):
    """Return the question with the first steps of a solution; of `levels` hints the last gives all steps but one."""
    most = len(steps) - 1
    number = min(levels, most)
    if level > number:
        raise Refused("too few steps")
    given = steps[: round(most * level / number)]
    if any(map(answer.is_told, given)):
        raise Refused("tells the answer")
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(given, start=1))
    return f"{question.whole}\n\nThe first steps of a solution are:\n{numbered}"


def said(reply):
    """Return an LLM's reply without its thoughts, quotes and fences; raise `Refused` if it is no text to use."""
    text = reply.encode(errors="replace").decode()  # JSON may hold half of a pair, which no file can
    text = _THOUGHT.sub("", text).strip().strip('`"“”').strip()
    if not text or len(text) > LONGEST_SOLUTION:
        raise Refused("too long" if text else "empty")
    if _MARKUP.search(text):
        raise Refused("a web page")
    if _REFUSAL.match(text):
        raise Refused("the LLM refuses")
    return text


def _lost_numbers(question, text):
    """Return whether a number of the question is missing, or as often as it is there."""
    left, numbers = _NUMBER.findall(text), _NUMBER.findall(question)
    return any(left.count(number) < numbers.count(number) for number in numbers)


def _tells(text, answer):
    """Return whether a text contains the answer as a word or a number of its own.

    The letter of a choice counts as a capital only, and an A in front of a small letter not, unless `option`, `choice`
    or `answer` introduces it.
    """
    wanted = answer.strip()
    if len(wanted) == 1 and wanted.isalpha():
        letter = wanted.upper()
        named = rf"(?i:option|choice|answer(?: is)?):?\s+\(?{letter}\b"
        return re.search(rf"(?<![\w.]){letter}(?!\w{'| [a-z]' if letter == 'A' else ''})|{named}", text) is not None
    around = rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)"
    return bool(wanted) and re.search(around, text, re.IGNORECASE) is not None


def _words(text):
    """Return the words that say what a text is about: of four letters or more, or of one letter, such as x."""
    return {word for word in re.findall(r"[^\W\d_]+", text.casefold()) if len(word) > 3 or len(word) == 1} - {"a", "i"}
