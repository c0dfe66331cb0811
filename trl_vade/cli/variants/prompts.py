"""The question in a row's prompt: its text, its choices, and the instruction after it, which stays."""

import re
from dataclasses import dataclass
from typing import Any

from trl_vade.rewards.functions import INSTRUCTION

_OURS = INSTRUCTION.removesuffix(".")  # the mixture's prompts with choices end in other words
_CHOICES = re.compile(r"\n\s*(?=(?:Choices|Options):|\(?A[.):] )")


@dataclass(frozen=True)
class Question:
    """The parts of a prompt. Variants change `text`, and keep the others."""

    prompt: Any  # text, or a list of messages
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
        text = _text_in(prompt)
        if text is None or not text.strip():
            return None
        starts = [text.find(start) for start in (_OURS, instruction) if start]
        end = min((place for place in starts if place >= 0), default=len(text))
        whole = text[:end].strip()
        found = _CHOICES.search(whole)
        cut = found.start() if found else len(whole)
        return cls(prompt, whole[:cut].strip(), whole[cut:].strip(), text[end:].strip())

    @property
    def whole(self) -> str:
        """The text and its choices."""
        return "\n".join(filter(None, (self.text, self.choices)))

    def with_text(self, text: str) -> Any:
        """Return the prompt with `text` in place of the text."""
        return self.with_whole("\n".join(filter(None, (text, self.choices))))

    def with_whole(self, text: str) -> Any:
        """Return the prompt with `text` in place of the text and the choices."""
        return _with_text_in(self.prompt, "\n\n".join(filter(None, (text, self.instruction))))


def _place(prompt: Any) -> int | None:
    """Return the place of the user's last message."""
    places = [i for i, message in enumerate(prompt) if isinstance(message, dict) and message.get("role") == "user"]
    return places[-1] if places else None


def _text_in(prompt: Any) -> str | None:
    if isinstance(prompt, str):
        return prompt
    place = _place(prompt) if isinstance(prompt, list) else None
    if place is None:
        return None
    content = prompt[place].get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [part["text"] for part in content if isinstance(part, dict) and part.get("text")]
    return texts[0] if len(texts) == 1 else None


def _with_text_in(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return text
    place = _place(prompt)
    assert place is not None
    message, content = prompt[place], prompt[place]["content"]
    if isinstance(content, list):
        content = [{**part, "text": text} if part.get("text") else part for part in content]
    return [
        *prompt[:place],
        {**message, "content": text if isinstance(content, str) else content},
        *prompt[place + 1 :],
    ]
