"""The variants of one row, each verified; the rewards' verifier decides whether a hint gives the answer away."""

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

import numpy as np
from datasets import Image as ImageFeature
from PIL import Image

from trl_vade.data import text_variants as texts
from trl_vade.data.image_variants import IMAGE_KINDS, changed_image, question_drawn
from trl_vade.rewards.answers import find_answer
from trl_vade.rewards.functions import RELAXED_SOURCES
from trl_vade.rewards.verifiers import judge
from trl_vade.testbed.dataset import encode_png

from .endpoint import Endpoint, Request
from .kinds import family_of, level_of, why_unsafe
from .prompts import Question
from .replies import Replies

Row = dict[str, Any]
DRAWN_PROMPT = "Answer the question in the image."


class Refused(Exception):
    """Why a row has no variant of a kind."""


@dataclass(frozen=True)
class Columns:
    """The names of a data set's columns; None for one that it lacks."""

    prompt: str
    image: str | None
    answer: str | None
    solution: str | None
    task: str | None


@dataclass(frozen=True)
class Maker:
    """What is made of a row."""

    kinds: list[str]
    columns: Columns
    seed: int = 0
    endpoint: Endpoint | None = None
    safe_for: Mapping[str, set[str]] = field(default_factory=dict)
    instruction: str | None = None  # how the prompts' instruction begins
    text_only: bool = False  # the LLM gets no pictures
    font: str | None = None

    def requests(self, row: Row) -> Iterator[Request]:
        """Yield the questions to the LLM that the variants of a row need."""
        one = _Row(self, row)
        if "text" in self.kinds and one.question and not one.unsafe("text"):
            yield one.paraphrase_request()
        hints = any(family_of(kind) == "hint" for kind in self.kinds)
        if hints and one.question and one.answer and not one.steps and not one.unsafe("hint-1"):
            yield one.steps_request()

    def variants(self, row: Row, replies: Replies) -> Iterator[tuple[str, Row | str]]:
        """Yield each kind with the columns that its variant changes, or with the reason why there is none."""
        one = _Row(self, row)
        for kind in self.kinds:
            try:
                yield kind, one.variant(kind, replies)
            except Refused as refused:
                yield kind, str(refused)


class _Row:
    """A row, and what is read of it."""

    def __init__(self, maker: Maker, row: Row):
        self.maker, self.row, columns = maker, row, maker.columns
        self.question = Question.of(row[columns.prompt], maker.instruction)
        value = row[columns.image] if columns.image else None
        self.files = [file for file in (value if isinstance(value, list) else [value]) if file is not None]
        steps = texts.steps_of(str(row[columns.solution] or "")) if columns.solution else []
        self.steps = steps if len(steps) > 1 else []  # one step is the answer alone
        self.task = None if columns.task is None else row[columns.task]
        self.answer = _answer_in(row[columns.answer] if columns.answer else None)
        choices = row.get("choices")
        self.choices = [*map(str, choices)] if isinstance(choices, list) and choices else None
        self._images: list[Image.Image] = []

    def unsafe(self, kind: str) -> str | None:
        about = " ".join([self.question.whole, *(self.choices or ()), self.answer])
        return why_unsafe(kind, None if self.task is None else str(self.task), about, self.maker.safe_for)

    def variant(self, kind: str, replies: Replies) -> Row:
        """Return the columns that a variant changes, with those of its provenance."""
        if self.question is None:
            raise Refused("no single question text")
        unsafe, family = self.unsafe(kind), family_of(kind)
        if unsafe:
            raise Refused(unsafe)
        if family in IMAGE_KINDS:
            return self._changed(kind)
        if family == "drawn":
            return self._drawn()
        if family == "text":
            return self._paraphrased(replies)
        return self._hinted(level_of(kind), replies)

    def _changed(self, kind: str) -> Row:
        images, name, seed = self._decoded(), self.row["id"], self.maker.seed
        made = [changed_image(image, kind, name + "\0" * place, seed) for place, image in enumerate(images)]
        if all(np.array_equal(image, new) for image, new in zip(images, made, strict=True)):
            raise Refused("equal to the original")
        return {**self._with_images(made), "variant_source": "image"}

    def _drawn(self) -> Row:
        first, *others = self._decoded()
        page = question_drawn(first, self.question.whole, self.maker.font)
        if page is None:
            raise Refused("the font lacks a sign")
        prompt = self.question.with_whole(DRAWN_PROMPT)
        return {**self._with_images([page, *others]), self.maker.columns.prompt: prompt, "variant_source": "image"}

    def _decoded(self) -> list[Image.Image]:
        if not self.files:
            raise Refused("no picture")
        if not self._images:
            try:
                self._images = [ImageFeature().decode_example(file).convert("RGB") for file in self.files]
            except Exception as error:  # Pillow raises many kinds for a damaged file
                raise Refused("a damaged picture") from error
        return self._images

    def _with_images(self, images: list[Image.Image]) -> Row:
        column = self.maker.columns.image
        files = [{"bytes": encode_png(image), "path": None} for image in images]
        return {column: files if isinstance(self.row[column], list) else files[0]}

    def _paraphrased(self, replies: Replies) -> Row:
        request = self.paraphrase_request()
        reply = self._reply(replies, request)
        fault = texts.no_paraphrase(self.question.text, reply)
        if fault:
            raise Refused(fault)
        if " ".join(reply.split()) == " ".join(self.question.text.split()):
            raise Refused("equal to the original")
        if self._told(reply) and not self._told(self.question.text):
            raise Refused("tells the answer")
        return {self.maker.columns.prompt: self.question.with_text(reply), **self._origin(request)}

    def _hinted(self, level: int, replies: Replies) -> Row:
        if not self.answer:
            raise Refused("no answer to verify with")
        steps, origin = self.steps, Row(variant_source="solution")
        if not steps:
            request = self.steps_request()
            reply, origin = self._reply(replies, request), self._origin(request)
            fault, steps = texts.no_text(reply), texts.steps_of(reply)
            if fault or not steps or not self._is_right(steps[-1]):
                raise Refused(fault or "the steps do not reach the answer")
        levels = max(level_of(kind) for kind in self.maker.kinds if family_of(kind) == "hint")
        sizes = texts.hint_sizes(len(steps), levels)
        if level > len(sizes):
            raise Refused("too few steps")
        given = steps[: sizes[level - 1]]
        if any(map(self._told, given)):
            raise Refused("tells the answer")
        prompt = self.question.with_whole(texts.with_hint(self.question.whole, given))
        return {self.maker.columns.prompt: prompt, **origin}

    def paraphrase_request(self) -> Request:
        return self._request(texts.PARAPHRASE.format(question=self.question.text), [])

    def steps_request(self) -> Request:
        prompt = texts.STEPS.format(question=self.question.whole, answer=self.answer)
        return self._request(prompt, [] if self.maker.text_only else self.files)

    def _request(self, prompt: str, files: list[Row]) -> Request:
        if self.maker.endpoint is None:
            raise Refused("no solution")  # kinds that always need an LLM are refused without one before
        key = self.maker.endpoint.key_of(prompt, [file["bytes"] for file in files])
        return Request(key, prompt, self._data_urls if files else list)

    def _data_urls(self) -> list[str] | None:
        """Return the pictures for a request, or None if one is damaged."""
        try:
            return [_data_url(image) for image in self._decoded()]
        except Refused:
            return None

    def _reply(self, replies: Replies, request: Request) -> str:
        reply = replies.get(request.key)
        if reply is None:
            raise Refused("no reply" if request.pictures() is not None else "a damaged picture")
        return texts.said(reply)

    def _origin(self, request: Request) -> Row:
        model = self.maker.endpoint.model
        return {"variant_source": "endpoint", "variant_model": model, "variant_request": request.key}

    def _told(self, text: str) -> bool:
        """Return whether a text gives the answer away: as a word, as a number, or as the verifier reads it."""
        right = [self.answer, *self._right_choice()]
        numbers = texts.numbers_in(text) if self.choices is None else []
        return any(texts.tells(text, one) for one in right) or any(map(self._is_right, [text, *numbers]))

    def _is_right(self, text: str) -> bool:
        relaxed = self.row.get("source") in RELAXED_SOURCES
        return judge(text, self.answer, self.row.get("answer_type"), self.choices, relaxed=relaxed) == 1.0

    def _right_choice(self) -> list[str]:
        """Return the text of the right choice where the answer is its letter."""
        place = ascii_uppercase.find(self.answer.upper()) if len(self.answer) == 1 else -1
        return self.choices[place : place + 1] if self.choices and place >= 0 else []


def _answer_in(value: Any) -> str:
    """Return the answer alone, where a column holds a whole solution (`#### 12`, a box, several lines).

    A list with several answers has none: a hint could hold any of them.
    """
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    text = str(value).rpartition("####")[2].strip() if isinstance(value, str | int | float) else ""
    if "\n" in text or "\\boxed" in text or "<answer>" in text:
        return next(reversed(find_answer(text)), "")
    return text


def _data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
