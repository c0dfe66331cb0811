"""Prompt lengths: the tokens of each prompt, counted by the processor before training; too long rows are dropped."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import PIL
import tokenizers
import transformers
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from transformers import AutoProcessor, ProcessorMixin
from transformers.utils import get_json_schema
from trl import GRPOConfig
from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving
from trl.data_utils import is_conversational
from trl.trainer.utils import get_config_model_id

from trl_vade.errors import ConfigurationError

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

    A transform of the data set applies first. The other arguments are those of `GRPOTrainer` and its config. An image
    that cannot be decoded is an `ImageDecodeError`; errors of the processor get a note of the row.
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


logger = get_logger(__name__)


def drop_overlong(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Drop rows with more than `args.vade_max_prompt_length` prompt tokens from the data sets, and log how many.

    TRL 1.16 truncates no prompt, so such a row may end the run at the step that reaches it. The main process of each
    node counts first, and the others read its cache (see `row_values`). The trainer's `arguments` are changed: the
    data sets, and `processing_class`, which is loaded here if it is missing. If all prompts are too long, it is a
    `ConfigurationError`, and an image that cannot be decoded is an `ImageDecodeError`.
    """
    if args.vade_max_prompt_length is None:
        return
    if arguments.get("processing_class") is None:
        model, by_name = arguments["model"], isinstance(arguments["model"], str)
        arguments["processing_class"] = AutoProcessor.from_pretrained(  # as TRL 1.16 would load it
            model if by_name else get_config_model_id(model.config),
            revision=(args.model_init_kwargs or {}).get("revision") if by_name else None,
            truncation_side="left",
            padding_side="left",
            trust_remote_code=args.trust_remote_code,
        )
    count = functools.partial(
        prompt_lengths,
        processing_class=arguments["processing_class"],
        chat_template_kwargs=args.chat_template_kwargs,
        tools=arguments.get("tools"),
    )
    with args.main_process_first(desc="counting the tokens of the prompts"):
        for name in ("train_dataset", "eval_dataset"):
            rows = arguments.get(name)
            if isinstance(rows, Mapping):
                arguments[name] = {part: _shorter(rows[part], count, args, f"{name}[{part!r}]") for part in rows}
            elif rows is not None:
                arguments[name] = _shorter(rows, count, args, name)


def _shorter(rows: Dataset, count: Callable[[Dataset], Any], args: GRPOConfig, name: str) -> Dataset:
    lengths, most = count(rows), args.vade_max_prompt_length
    kept = np.flatnonzero(lengths <= most)
    if len(kept) == len(rows):
        return rows
    if not len(kept):
        raise ConfigurationError(
            f"vade_max_prompt_length={most}, but all {len(rows)} prompts of {name} are longer, images included: the "
            f"shortest has {lengths.min()} tokens. Set it to the longest prompt that fits into memory, lower the "
            "image processor's size (max_pixels), or set None to keep every row."
        )
    logger.warning(
        f"{name}: {len(rows) - len(kept)} of {len(rows)} rows are dropped, because their prompts have more than "
        f"vade_max_prompt_length={most} tokens, images included. The longest has {lengths.max()}."
    )
    return rows.select(kept)
