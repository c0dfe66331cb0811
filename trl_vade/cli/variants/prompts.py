"""The question in a row's prompt: its text, its choices, and the instruction after it, which stays."""

import re
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from trl_vade.rewards.functions import INSTRUCTION

_OURS = INSTRUCTION.removesuffix(".")  # the mixture's prompts with choices end in other words
_CHOICES = re.compile(r"\n\s*(?=(?:Choices|Options):|\(?A[.):] )")


@dataclass(frozen=True)
class Question:
    """The parts of a prompt. Variants change `text`, and keep the others."""

    prompt: Any  # text, or a list of messages
    path: list[Any]  # to the text in it
    text: str
    choices: str
    instruction: str

    @classmethod
    def of(cls, prompt: Any, instruction: str | None = None) -> "Question | None":
        """Return the question of a prompt, or None if it is not in one text.

        Args:
            prompt: a text, or messages. Of these the last of the user is read.
            instruction: how the instruction at the end begins. That of the mixture is known.
        """
        path = _path(prompt)
        text = "" if path is None else reduce(getitem, path, prompt)
        if not text.strip():
            return None
        starts = [text.find(start) for start in (_OURS, instruction) if start]
        end = min((place for place in starts if place >= 0), default=len(text))
        whole = text[:end].strip()
        found = _CHOICES.search(whole)
        cut = found.start() if found else len(whole)
        return cls(prompt, path, whole[:cut].strip(), whole[cut:].strip(), text[end:].strip())

    @property
    def whole(self) -> str:
        """The text and its choices."""
        return "\n".join(filter(None, (self.text, self.choices)))

    def with_text(self, text: str) -> Any:
        """Return the prompt with `text` in place of the text."""
        return self.with_whole("\n".join(filter(None, (text, self.choices))))

    def with_whole(self, text: str) -> Any:
        """Return the prompt with `text` in place of the text and the choices."""
        return _replaced(self.prompt, self.path, "\n\n".join(filter(None, (text, self.instruction))))


def _path(prompt: Any) -> list[Any] | None:
    """Return the keys that lead to the only text of the user's last message, [] for a text, or None without one."""
    if isinstance(prompt, str):
        return []
    messages = prompt if isinstance(prompt, list) else []
    places = [i for i, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"]
    content = messages[places[-1]].get("content") if places else None
    if isinstance(content, str):
        return [places[-1], "content"]
    parts = content if isinstance(content, list) else []
    texts = [i for i, part in enumerate(parts) if isinstance(part, dict) and part.get("text")]
    return [places[-1], "content", texts[0], "text"] if len(texts) == 1 else None


def _replaced(value: Any, path: list[Any], text: str) -> Any:
    """Return a copy of `value` with `text` at the end of the path."""
    if not path:
        return text
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], text)
    return copy
