"""Prompt lengths: the number of tokens of each prompt, counted by the processor before training."""

import functools
import hashlib
import json
from typing import Any

import numpy as np
import PIL
import tokenizers
import transformers
from datasets import Dataset
from numpy.typing import NDArray
from transformers import ProcessorMixin
from transformers.utils import get_json_schema
from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving
from trl.data_utils import is_conversational

from .cached_values import row_values
from .decoding import RowDecoder, Rows, naming_row
from .loading import messages_of, with_image_lists
from .row_keys import CONTENT


def prompt_lengths(
    dataset: Dataset,
    processing_class: Any,
    chat_template_kwargs: dict[str, Any] | None = None,
    tools: list[Any] | None = None,
) -> NDArray[np.int64]:
    """Count the tokens of each row's prompt, (N,), as TRL 1.16 makes them; see `row_values` for the cache.

    A transform or a format of the data set applies first. The other arguments are those of `GRPOTrainer` and of its
    config. An image that cannot be decoded is an `ImageDecodeError`. Errors of the processor get a note of the row.
    """
    template = None
    if tools and not is_chat_template_prefix_preserving(processing_class):  # TRL's own condition
        template = get_training_chat_template(processing_class)
    arguments = {"tools": tools or None, "chat_template": template, "add_generation_prompt": True}
    rendering = arguments | (chat_template_kwargs or {})
    if dataset.format["type"] is None:
        dataset = dataset.select_columns([name for name in CONTENT if name in dataset.features])
    decoder, count = RowDecoder(dataset), functools.partial(_lengths, processing_class, rendering)
    return row_values(
        dataset,
        lambda _, numbers: naming_row(numbers, with_image_lists(decoder.load(numbers)), count),
        depends_on={"lengths": 2, "processing": _digest(processing_class, rendering)},
        what="Counting the tokens of the prompts",
        batch_size=8 if isinstance(processing_class, ProcessorMixin) else 1000,  # pixels take hundreds of MB
    )


def _lengths(processing_class: Any, rendering: dict[str, Any], rows: Rows) -> list[int]:
    prompts = [row["prompt"] for row in rows]
    if not is_conversational(rows[0]):
        return [*map(len, processing_class(text=prompts)["input_ids"])]
    if isinstance(processing_class, ProcessorMixin):
        prompts = [*map(messages_of, rows)]
    made = processing_class.apply_chat_template(conversation=prompts, tokenize=True, return_dict=True, **rendering)
    return [*map(len, made["input_ids"])]


def _digest(processing_class: Any, rendering: dict[str, Any]) -> str:
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    tools = [get_json_schema(tool) if callable(tool) else tool for tool in rendering["tools"] or []]
    parts = [
        (transformers.__version__, tokenizers.__version__, PIL.__version__),
        (type(processing_class).__name__, type(tokenizer).__name__, tokenizer.special_tokens_map),
        isinstance(processing_class, ProcessorMixin) and processing_class.to_json_string(),
        (processing_class.chat_template, rendering | {"tools": tools}),
        # Padding and truncation are those of its last call.
        json.loads(backend.to_str()) | {"padding": None, "truncation": None} if backend else tokenizer.get_vocab(),
    ]
    return hashlib.blake2b(json.dumps(parts, default=repr, sort_keys=True).encode(), digest_size=16).hexdigest()
