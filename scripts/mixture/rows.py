"""Rows of the training mixture: columns, names, and the choice of rows from a source."""

import hashlib
import heapq
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from trl_vade.rewards.functions import INSTRUCTION

from .conversations import REASONS, Question, read_row
from .overlap import EvaluationSets
from .sources import Source

DROPPED = {
    "no_image": "The row has no image.",
    "damaged_image": "Pillow cannot read the image.",
    "overlap_image": "The image is in an evaluation set.",
    **REASONS,
    "overlap_question": "The question is in an evaluation set, of a similar picture or of none.",
    "duplicate": "The row is equal to an earlier one.",
}
"""Why a row is not usable, in the order of the checks. The decoding comes last, and may find a damaged image, too."""

Row = dict[str, Any]


def features() -> Any:
    """Return the columns of the mixture as `datasets.Features`."""
    from datasets import Features, List, Value
    from datasets import Image as ImageFeature

    text = Value("string")
    return Features(
        {
            "id": text,
            "prompt": [{"role": text, "content": text}],
            "images": List(ImageFeature()),
            "answer": text,
            "answer_type": text,
            "choices": List(text),
            "task": text,
            "domain": text,
            "source": text,
        }
    )


def key(seed: int, purpose: str, name: str) -> int:
    """Return 128 random bits that depend on the arguments only, so the order of rows decides no choice."""
    digest = hashlib.blake2b(f"{seed}\0{purpose}\0{name}".encode(errors="surrogatepass"), digest_size=16)
    return int.from_bytes(digest.digest(), "big")


def prompt_text(question: Question, instruction: str | None = None) -> str:
    """Return the user's message: context, question, choices, and the instruction after a blank line.

    Args:
        question: a question.
        instruction: the text to end with, "" for none. None stands for `INSTRUCTION`, which asks for a letter if there
            are choices.
    """
    lines = [question.context] if question.context else []
    lines.append(question.text)
    if question.choices:
        labels = zip(string.ascii_uppercase, question.choices, strict=False)
        lines += ["Choices:", *(f"{letter}. {choice}" for letter, choice in labels)]
    if instruction is None:
        instruction = INSTRUCTION
        if question.choices:
            instruction = INSTRUCTION.removesuffix(".") + ": the letter of the right choice."
    return "\n".join(lines) + (f"\n\n{instruction}" if instruction else "")


def row_name(task: str, question: Question, image: bytes) -> str:
    """Return the `id` of a row: the task, and 64 bits over image, context, question, choices and answer."""
    digest = hashlib.blake2b(digest_size=8)
    texts = [question.context, question.text, *(question.choices or []), question.answer]
    for part in (image, *(text.encode(errors="surrogatepass") for text in texts)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return f"{task}-{digest.hexdigest()}"


@dataclass(frozen=True)
class Recipe:
    """The settings that decide the rows of a mixture, beside the content of the sources."""

    sources: tuple[Source, ...]
    seed: int = 0
    instruction: str | None = None  # see `prompt_text`
    evaluation: EvaluationSets | None = None  # None: no comparison
    mirror: Path | None = None  # a folder with copies of the repositories; None: the Hub
    allow_fewer: bool = False  # continue if a source has less than half of its rows


class Choice:
    """A uniform sample of the usable rows of a source: the `count` rows with the smallest keys.

    Attributes:
        counts: rows `read`, `usable`, and dropped by reason (`DROPPED`); the first is the sum of the others.
        removed: rows dropped for an overlap, by evaluation set, then by "image" or "question".
    """

    def __init__(self, source: Source, recipe: Recipe) -> None:
        self.counts: Counter[str] = Counter()
        self.removed: dict[str, Counter[str]] = {}
        self.source, self._seed, self._instruction = source, recipe.seed, recipe.instruction
        self._evaluation = recipe.evaluation or EvaluationSets()
        self._seen: set[str] = set()
        self._heap: list[tuple[int, str, Row]] = []  # the largest key first: keys are negated

    @property
    def rows(self) -> list[Row]:
        """The chosen rows, ordered by their keys."""
        return [row for _, _, row in sorted(self._heap, key=lambda entry: -entry[0])]

    def read(self, row: Mapping[str, Any]) -> None:
        """Read and count one row of the source, and keep it if its key is small enough."""
        self.counts["read"] += 1
        self.counts[self._why_not(row) or "usable"] += 1

    def _why_not(self, row: Mapping[str, Any]) -> str | None:
        """Offer the row to the sample; return why it is not usable, a name of `DROPPED`, or None."""
        image = (row["image"] or {}).get("bytes")
        if not image:
            return "no_image"
        try:
            with Image.open(BytesIO(image)) as opened:  # reads the head of the file alone
                size = opened.size
            sets = self._evaluation.with_image(image, size)
        except Exception:  # Pillow raises many kinds for a damaged file
            return "damaged_image"
        if sets:
            return self._note(sets, "image")
        question = self._question(row, image)
        return question if isinstance(question, str) else self._offer(question, image)

    def _question(self, row: Mapping[str, Any], image: bytes) -> Question | str:
        """Return the first readable question in a random order, else the reason of the latest check."""
        picture = hashlib.blake2b(image, digest_size=16).hexdigest()
        reasons, known, source = ["no_question"], None, self.source
        order = lambda text: key(self._seed, "turn", picture + text)  # noqa: E731
        for reading in read_row(source.reader, row, source.kinds, order):
            if isinstance(reading, str):
                reasons.append(reading)
            elif sets := self._evaluation.with_question(reading.text, reading.choices, image):
                known = known or sets
            else:
                return reading
        return self._note(known, "question") if known else max(reasons, key=list(REASONS).index)

    def _offer(self, question: Question, image: bytes) -> str | None:
        name = row_name(self.source.task, question, image)
        if name in self._seen:
            return "duplicate"
        self._seen.add(name)
        number = -key(self._seed, "row", name)
        if len(self._heap) >= self.source.count and number < self._heap[0][0]:
            return None
        if not _decodes(image):  # slow, so only for chosen rows: others may be damaged behind the head
            return "damaged_image"
        entry = (number, name, self._row(name, question, image))
        (heapq.heappushpop if len(self._heap) >= self.source.count else heapq.heappush)(self._heap, entry)
        return None

    def _row(self, name: str, question: Question, image: bytes) -> Row:
        return {
            "id": name,
            "prompt": [{"role": "user", "content": prompt_text(question, self._instruction)}],
            "images": [{"bytes": image, "path": None}],
            "answer": question.answer,
            "answer_type": question.answer_type,
            "choices": question.choices,
            "task": self.source.task,
            "domain": self.source.domain,
            "source": self.source.name,
        }

    def _note(self, sets: list[str], way: str) -> str:
        for name in sets:
            self.removed.setdefault(name, Counter())[way] += 1
        return f"overlap_{way}"


def _decodes(image: bytes) -> bool:
    try:
        with Image.open(BytesIO(image)) as opened:
            opened.load()
    except Exception:  # Pillow raises many kinds for a damaged file
        return False
    return True
