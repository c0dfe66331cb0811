"""How many tokens the prompt of each row has, counted before training and without running the image processor.

The numbers are those that `GRPOTrainer._tokenize_prompts` makes (TRL 1.16). What an image becomes follows from its
size, which stands in its header.
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
from .decoding import Rows
from .stored_images import THREADS, image_files, with_buffers

LENGTHS_VERSION = 1
"""Of how this module counts; part of the name of the cache file."""
HEADER_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Of these Pillow tells the size without decoding; others may have another one when they are decoded (ICNS)."""
TURNED = (5, 6, 7, 8)
"""EXIF orientations under which `datasets`, which decodes images upright, swaps height and width."""
FETCHED = {"url", "path", "base64"}
"""What transformers reads an image from, beside the one in memory."""

Size = tuple[int, int]  # height, width


def prompt_lengths(dataset: Dataset, counter: "PromptCounter") -> NDArray[np.int64]:
    """Return (N,) the number of tokens of each row's prompt, kept for the next start by `row_values`.

    Where the user gave the data set a transform or a format, the images are those that come out of it.

    Raises:
        ImageDecodeError: an image cannot be read.
        ConfigurationError: TRL could make no prompt of a row.
    """
    format = dataset.format
    plain = format["type"] is None and not format["format_kwargs"] and format["columns"] == dataset.column_names
    rows, columns = dataset, dataset.column_names
    if plain:
        columns = [name for name in ("prompt", "image", "images") if name in dataset.column_names]
        rows = dataset.select_columns(columns).with_format("arrow")

    def compute(batch: Any, numbers: list[int]) -> NDArray[np.int64]:
        values = _undecoded(batch, dataset) if plain else {name: batch[name] for name in batch}
        of_rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        counts = counter.count(of_rows, lambda i: _count_decoded(dataset, numbers[i], counter))
        return np.array(counts, dtype=np.int64)

    PIL.Image.init()  # before there are threads; see decoding.py
    state = {"lengths": LENGTHS_VERSION, "processing": counter.digest(), "files": image_files(dataset, columns)}
    counts = by_batch(rows, compute)
    return row_values(rows, counts, depends_on=state, what="Counting the tokens of the prompts")


class PromptCounter:
    """
    Counts the tokens that TRL makes of a prompt.

    Text is rendered and tokenised a batch at a time. The tokens of an image are the processor's own arithmetic over
    its size (`_get_num_multimodal_tokens`, which transformers has for vLLM). A row goes through the processor itself,
    which is slower, where its images are in a form that does not tell their size; all rows do where the processor has
    no such method, where the chat template's arguments may be meant for the processor, and where the arithmetic gives
    the shortest or the longest row of the first batch another number of tokens than the processor.

    Args:
        processing_class: tokenizer or processor.
        chat_template_kwargs: as in `GRPOConfig`.
        tools: as given to the trainer.
    """

    def __init__(
        self, processing_class: Any, chat_template_kwargs: dict[str, Any] | None = None, tools: list[Any] | None = None
    ):
        self.processing_class = processing_class
        self.vision = isinstance(processing_class, ProcessorMixin)
        self.tokenizer = processing_class.tokenizer if self.vision else processing_class
        template = None
        if tools and not is_chat_template_prefix_preserving(processing_class):  # as TRL decides it
            template = get_training_chat_template(processing_class)
        arguments = {"tools": tools or None, "chat_template": template, "add_generation_prompt": True}
        self.rendering = arguments | (chat_template_kwargs or {})
        # transformers hands what the template does not name to the processor.
        text = str(template or processing_class.chat_template)
        named = all(re.search(rf"\b{re.escape(name)}\b", text) for name in chat_template_kwargs or {})
        self.by_size = named and hasattr(processing_class, "_get_num_multimodal_tokens")
        self._compared: set[bool] = set()
        self._known: dict[Size, int] = {}

    def count(self, rows: Rows, whole: Callable[[int], int]) -> list[int]:
        """The tokens of each of `rows`, their images not decoded. `whole(i)` is `count_whole` of row i, decoded."""
        prompts = [row["prompt"] for row in rows]
        if not is_conversational({"prompt": prompts[0]}):
            return list(map(len, self.processing_class(text=prompts)["input_ids"]))
        if not self.vision:
            return list(map(len, self._tokenized([self._messages(row) for row in rows])))
        counts: list[int | None] = [None] * len(rows)
        if self.by_size:
            with suppress(ValueError):  # a row that TRL would refuse as well: `whole` will say which it is
                counts = self._count_by_size([self._messages(row) for row in rows])
            if not self._agrees(rows, counts, whole):
                self.by_size, counts = False, [None] * len(rows)
        return [whole(i) if count is None else count for i, count in enumerate(counts)]

    def count_whole(self, row: dict[str, Any]) -> int:
        """The tokens of a row whose images are decoded: `len` of what TRL generates from."""
        if not is_conversational({"prompt": row["prompt"]}):
            return len(self.processing_class(text=[row["prompt"]])["input_ids"][0])
        return len(self._tokenized([self._messages(row)])[0])

    def digest(self) -> str:
        """Of what the numbers follow from, beside the rows and this module."""
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
        """The row's conversation as TRL prepares it."""
        single = [] if row.get("image") is None else [row["image"]]
        images = (row["images"] or []) if "images" in row else single
        if images or self.vision:
            return prepare_multimodal_messages(row["prompt"], images=images)
        return row["prompt"]

    def _tokenized(self, messages: list[Any]) -> Any:
        return self.processing_class.apply_chat_template(
            conversation=messages, tokenize=True, return_dict=True, **self.rendering
        )["input_ids"]

    def _count_by_size(self, messages: list[Any]) -> list[int | None]:
        """The tokens of each conversation; None where its images do not tell their size."""
        images = list(map(_images_of, messages))
        in_files = any(isinstance(image, dict) and image.get("bytes") is None for row in images for image in row)
        # To open a file is to wait, and the text is tokenised meanwhile; what Arrow holds is read under the GIL.
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
        """Ask the processor for the tokens of images of these sizes, upright and turned.

        Raises:
            ValueError: it takes no image of such a size (Qwen's none with a side 200 times the other).
        """
        new = sorted({way for size in sizes if size for way in (size, size[::-1])} - self._known.keys())
        if new:
            data = self.processing_class._get_num_multimodal_tokens(image_sizes=list(map(list, new)))
            self._known.update(zip(new, data.num_image_tokens, strict=True))

    def _tokens(self, image: Any, size: Size | None) -> int | None:
        """Of one image. Its orientation is looked up only where it matters: in a PNG it may stand at the end."""
        if size is not None and self._known[size] != self._known[size[::-1]]:
            size = _size(image, upright=True)
        return None if size is None else self._known[size]

    def _agrees(self, rows: Rows, counts: list[int | None], whole: Callable[[int], int]) -> bool:
        """Whether the first rows that were counted, with images and without, have these numbers of tokens."""
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
    """Count row `number` as TRL would: decoded, and through the processor."""
    try:
        row = dataset[number]
    except Exception as error:
        raise ImageDecodeError(
            f"Row {number} cannot be read: {type(error).__name__}: {error}. Its images count for the length of its "
            "prompt (vade_max_prompt_length). Mend the file, or leave the row out of the data set."
        ) from error
    try:
        return counter.count_whole(row)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"Row {number} has no prompt that could be trained on: {type(error).__name__}: {error}. The tokens of all "
            "rows are counted since vade_max_prompt_length is set. Mend the row, or leave it out of the data set."
        ) from error


def _undecoded(batch: pa.Table, dataset: Dataset) -> dict[str, list[Any]]:
    """The columns of a batch, as rows have them, but with images in the form in which Arrow holds them."""
    values = {name: list(map(with_buffers, batch.column(name))) for name in batch.column_names if name != "prompt"}
    return values | dataset.features.decode_batch(batch.select(["prompt"]).to_pydict())


def _images_of(messages: Any) -> list[Any]:
    """The images in a conversation that TRL prepared; `None` stands for one that is fetched, and for other media."""
    parts = [part for message in messages for part in message.get("content") or [] if part["type"] != "text"]
    return [part["image"] if part["type"] == "image" and not part.keys() & FETCHED else None for part in parts]


def _sizes(rows: list[list[Any]]) -> list[list[Size | None]]:
    return [[_size(image) for image in images] for images in rows]


def _size(image: Any, *, upright: bool = False) -> Size | None:
    """Height and width of an image by its header; None where only decoding it would tell."""
    if isinstance(image, PIL.Image.Image):
        return image.height, image.width
    if not isinstance(image, dict) or image.keys() != {"bytes", "path"}:
        return None
    file = image["path"] if image["bytes"] is None else pa.BufferReader(image["bytes"])
    try:
        with PIL.Image.open(file, formats=HEADER_FORMATS) as header:
            size = header.height, header.width
            turned = upright and header.getexif().get(PIL.ExifTags.Base.Orientation) in TURNED
    except Exception:  # decoding it will tell what is wrong
        return None
    return size[::-1] if turned else size
