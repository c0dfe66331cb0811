"""Rows with a longer prompt than `vade_max_prompt_length`, dropped before training."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from datasets import Dataset
from transformers import AutoProcessor
from trl import GRPOConfig
from trl.trainer.utils import get_config_model_id

from trl_vade.data.prompt_lengths import prompt_lengths
from trl_vade.errors import ConfigurationError

logger = get_logger(__name__)


def drop_overlong(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Drop rows with more than `args.vade_max_prompt_length` prompt tokens from the data sets, and log how many.

    TRL 1.16 truncates no prompt, so such a row may end the run at the step that reaches it. The main process of each
    node counts first, and the others read its cache. Rows in memory have no cache (see `row_values`): every process
    then counts them, at every start.

    The trainer's `arguments` are changed in place: `train_dataset`, `eval_dataset`, and `processing_class`, which is
    loaded here if it is missing.

    Raises:
        ConfigurationError: all prompts of a data set are too long.
        ImageDecodeError: an image of a row cannot be decoded.
        Exception: whatever the processor raises for a row, with a note of its number.
    """
    if args.vade_max_prompt_length is None:
        return
    if arguments.get("processing_class") is None:
        arguments["processing_class"] = _load_processing_class(arguments["model"], args)
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


def _load_processing_class(model: Any, args: GRPOConfig) -> Any:
    """Return the processor or tokenizer that TRL 1.16 would load by itself."""
    by_name = isinstance(model, str)
    return AutoProcessor.from_pretrained(
        model if by_name else get_config_model_id(model.config),
        revision=(args.model_init_kwargs or {}).get("revision") if by_name else None,
        truncation_side="left",
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
    )


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
