"""Prompt lengths: the number of tokens of each prompt, counted before training and without the image processor.

The numbers equal those of `GRPOTrainer._tokenize_prompts` (TRL 1.16). The size in the header of an image determines
its number of tokens.
"""

import hashlib
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import tokenizers
import transformers
from datasets import Dataset
from numpy.typing import NDArray
from transformers import ProcessorMixin
from transformers.utils import get_json_schema
from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving
from trl.data_utils import is_conversational, prepare_multimodal_messages

from trl_vade.errors import ConfigurationError, ImageDecodeError

from .cached_values import by_batch, row_values
from .decoding import Rows, is_plain
from .stored_images import THREADS, image_files, with_buffers

LENGTHS_VERSION = 1  # the version of this way to count, part of the digest of the cache file
HEADER_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""The formats with a reliable size in the header. Others (ICNS) may have another size once decoded."""
TURNED = (5, 6, 7, 8)  # the EXIF orientations that swap height and width, since `datasets` decodes images upright
FETCHED = {"url", "path", "base64"}  # the keys from which transformers fetches an image that is not in memory

Size = tuple[int, int]  # height, width


def prompt_lengths(dataset: Dataset, counter: "PromptCounter") -> NDArray[np.int64]:
    """Count the tokens of each row's prompt, (N,), and cache them for the next start; see `row_values`.

    A transform or a format of the data set applies to the images first. An image that cannot be read is an
    `ImageDecodeError`, a row without a valid prompt a `ConfigurationError`.
    """
    rows, columns = dataset, dataset.column_names
    if plain := is_plain(dataset):
        columns = [name for name in ("prompt", "image", "images") if name in dataset.column_names]
        rows = dataset.select_columns(columns).with_format("arrow")

    def compute(batch: Any, numbers: list[int]) -> NDArray[np.int64]:
        values = _undecoded(batch, dataset) if plain else {name: batch[name] for name in batch}
        of_rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        counts = counter.count(of_rows, lambda i: _count_decoded(dataset, numbers[i], counter))
        return np.array(counts, dtype=np.int64)

    PIL.Image.init()  # before threads start; see decoding.py
    state = {"lengths": LENGTHS_VERSION, "processing": counter.digest(), "files": image_files(dataset, columns)}
    counts = by_batch(rows, compute)
    return row_values(rows, counts, depends_on=state, what="Counting the tokens of the prompts")


class PromptCounter:
    """A counter of the tokens of TRL's prompts.

    Text is rendered and tokenised in batches. The tokens of an image follow from its size, by the processor's own
    `_get_num_multimodal_tokens`, which transformers has for vLLM. Rows with images of unknown size go through the
    processor, which is slower. All rows do in three cases: the processor lacks that method, arguments of the chat
    template may be meant for the processor, or its result differs for the shortest or longest row of the first batch.
    """

    def __init__(
        self, processing_class: Any, chat_template_kwargs: dict[str, Any] | None = None, tools: list[Any] | None = None
    ):
        self.processing_class = processing_class
        self.vision = isinstance(processing_class, ProcessorMixin)
        self.tokenizer = processing_class.tokenizer if self.vision else processing_class
        template = None
        if tools and not is_chat_template_prefix_preserving(processing_class):  # TRL's own condition
            template = get_training_chat_template(processing_class)
        arguments = {"tools": tools or None, "chat_template": template, "add_generation_prompt": True}
        self.rendering = arguments | (chat_template_kwargs or {})
        # transformers passes arguments that the template does not name to the processor.
        text = str(template or processing_class.chat_template)
        named = all(re.search(rf"\b{re.escape(name)}\b", text) for name in chat_template_kwargs or {})
        self.by_size = named and hasattr(processing_class, "_get_num_multimodal_tokens")
        self._compared: set[bool] = set()
        self._known: dict[Size, int] = {}

    def count(self, rows: Rows, whole: Callable[[int], int]) -> list[int]:
        """Return the number of tokens of each row with undecoded images; `whole(i)` decodes row i and counts it."""
        prompts = [row["prompt"] for row in rows]
        if not is_conversational({"prompt": prompts[0]}):
            return list(map(len, self.processing_class(text=prompts)["input_ids"]))
        if not self.vision:
            return list(map(len, self._tokenized([self._messages(row) for row in rows])))
        counts: list[int | None] = [None] * len(rows)
        if self.by_size:
            with suppress(ValueError):  # TRL would refuse a row as well; `whole` finds it and raises
                counts = self._count_by_size([self._messages(row) for row in rows])
            if not self._agrees(rows, counts, whole):
                self.by_size, counts = False, [None] * len(rows)
        return [whole(i) if count is None else count for i, count in enumerate(counts)]

    def count_whole(self, row: dict[str, Any]) -> int:
        """Return the number of tokens that TRL generates from, for a row with decoded images."""
        if not is_conversational({"prompt": row["prompt"]}):
            return len(self.processing_class(text=[row["prompt"]])["input_ids"][0])
        return len(self._tokenized([self._messages(row)])[0])

    def digest(self) -> str:
        """Return a digest of the tokenizer, the processor, the chat template and the library versions."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        vocabulary = backend.to_str() if backend else sorted(self.tokenizer.get_vocab().items())
        tools = [get_json_schema(tool) if callable(tool) else tool for tool in self.rendering["tools"] or []]
        parts = [
            (transformers.__version__, tokenizers.__version__, PIL.__version__),
            (type(self.processing_class).__name__, self.vision and self.processing_class.to_json_string()),
            (self.processing_class.chat_template, self.rendering | {"tools": tools}),
            (type(self.tokenizer).__name__, vocabulary, self.tokenizer.special_tokens_map),
        ]
        return hashlib.blake2b(json.dumps(parts, default=repr, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _messages(self, row: dict[str, Any]) -> Any:
        single = [] if row.get("image") is None else [row["image"]]
        images = (row["images"] or []) if "images" in row else single
        if images or self.vision:
            return prepare_multimodal_messages(row["prompt"], images=images)
        return row["prompt"]

    def _tokenized(self, messages: list[Any]) -> Any:
        try:
            return self.processing_class.apply_chat_template(
                conversation=messages, tokenize=True, return_dict=True, **self.rendering
            )["input_ids"]
        except StopIteration as error:  # of transformers before 5.23; it would end a generator without a word
            token = getattr(self.processing_class, "image_token", "of an image")
            raise ValueError(f"the text has more places ({token}) than the row has images") from error

    def _count_by_size(self, messages: list[Any]) -> list[int | None]:
        """Return the number of tokens of each conversation, or None if an image has no known size."""
        images = list(map(_images_of, messages))
        in_files = any(isinstance(image, dict) and image.get("bytes") is None for row in images for image in row)
        # Threads open image files while the text is tokenised. Bytes in Arrow are read under the GIL: one thread.
        with ThreadPoolExecutor(THREADS if in_files else 1) as pool:
            tasks = [pool.submit(_sizes, images[i : i + 8]) for i in range(0, len(images), 8)]
            texts = self.processing_class.apply_chat_template(conversation=messages, tokenize=False, **self.rendering)
            bos = self.tokenizer.bos_token
            special = bos is None or not texts[0].startswith(bos)  # as `apply_chat_template` of transformers 5.23
            lengths = list(map(len, self.tokenizer(texts, add_special_tokens=special)["input_ids"]))
            sizes = [of_row for task in tasks for of_row in task.result()]
        self._learn({size for of_row in sizes for size in of_row})
        counts: list[int | None] = []
        for text, length, of_row, sizes_of_row in zip(texts, lengths, images, sizes, strict=True):
            placeholders = text.count(self.processing_class.image_token)
            tokens = [self._tokens(*pair) for pair in zip(of_row, sizes_of_row, strict=True)]
            sound = None not in tokens and len(tokens) == placeholders
            counts.append(length - placeholders + sum(filter(None, tokens)) if sound else None)
        return counts

    def _learn(self, sizes: set[Size | None]) -> None:
        """Ask for the tokens of images of these sizes and turned ones. The processor may refuse one (ValueError)."""
        new = sorted({way for size in sizes if size for way in (size, size[::-1])} - self._known.keys())
        if new:
            data = self.processing_class._get_num_multimodal_tokens(image_sizes=list(map(list, new)))
            self._known.update(zip(new, data.num_image_tokens, strict=True))

    def _tokens(self, image: Any, size: Size | None) -> int | None:
        """Return the tokens of an image. The orientation, at the end of some PNG files, is read only if it matters."""
        if size is not None and self._known[size] != self._known[size[::-1]]:
            size = _size(image, upright=True)
        return None if size is None else self._known[size]

    def _agrees(self, rows: Rows, counts: list[int | None], whole: Callable[[int], int]) -> bool:
        """Return whether the processor agrees on the shortest and longest first rows, with and without images."""
        for kind in {False, True} - self._compared:
            of_kind = [
                i for i, n in enumerate(counts) if n is not None and kind == bool(_images_of(self._messages(rows[i])))
            ]
            if of_kind:
                self._compared.add(kind)
                by_length = sorted(of_kind, key=counts.__getitem__)
                if any(whole(i) != counts[i] for i in {by_length[0], by_length[-1]}):
                    return False
        return True


def _count_decoded(dataset: Dataset, number: int, counter: PromptCounter) -> int:
    """Decode row `number` and count its tokens with the processor, as TRL does."""
    try:
        row = dataset[number]
    except Exception as error:
        raise ImageDecodeError(
            f"Row {number} cannot be read: {type(error).__name__}: {error}. vade_max_prompt_length needs the tokens "
            "of its images. Repair the file, or drop the row from the data set."
        ) from error
    try:
        return counter.count_whole(row)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"Row {number} has no valid prompt: {type(error).__name__}: {error}. vade_max_prompt_length needs the "
            "tokens of all rows. Repair the row, or drop it from the data set."
        ) from error


def _undecoded(batch: pa.Table, dataset: Dataset) -> dict[str, list[Any]]:
    values = {name: list(map(with_buffers, batch.column(name))) for name in batch.column_names if name != "prompt"}
    return values | dataset.features.decode_batch(batch.select(["prompt"]).to_pydict())


def _images_of(messages: Any) -> list[Any]:
    parts = [part for message in messages for part in message.get("content") or [] if part["type"] != "text"]
    return [part["image"] if part["type"] == "image" and not part.keys() & FETCHED else None for part in parts]


def _sizes(rows: list[list[Any]]) -> list[list[Size | None]]:
    return [[_size(image) for image in images] for images in rows]


def _size(image: Any, *, upright: bool = False) -> Size | None:
    """Return the height and width from the header of an image, or None if it must be decoded."""
    if isinstance(image, PIL.Image.Image):
        return image.height, image.width
    if not isinstance(image, dict) or image.keys() != {"bytes", "path"}:
        return None
    file = image["path"] if image["bytes"] is None else pa.BufferReader(image["bytes"])
    try:
        with PIL.Image.open(file, formats=HEADER_FORMATS) as header:
            size = header.height, header.width
            turned = upright and header.getexif().get(PIL.ExifTags.Base.Orientation) in TURNED
    except Exception:  # decoding will raise the error
        return None
    return size[::-1] if turned else size
