"""What a trainer is given, looked at before a model is loaded or a GPU is touched."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from datasets import ClassLabel, Dataset, Value
from torch import nn
from transformers import AutoProcessor
from trl import GRPOConfig
from trl.trainer.utils import get_callable_name, get_config_model_id

from trl_vade.data.prompt_lengths import PromptCounter, prompt_lengths
from trl_vade.errors import ConfigurationError, abbreviated

from .grpo_config import VADEGRPOConfig, with_vade_defaults
from .presets import is_adaptive

logger = get_logger(__name__)


def resolve_args(args: GRPOConfig | None, model: Any) -> GRPOConfig:
    """`args` with VADE's fields. Where it is None, the defaults in a folder named after the model, as TRL does."""
    if args is None:
        model_id = model if isinstance(model, str) else get_config_model_id(model.config)
        args = VADEGRPOConfig(f"{model_id.split('/')[-1]}-VADE")
    return with_vade_defaults(args)


def reward_names(reward_funcs: Any, environment_factory: Any = None) -> list[str] | None:
    """The names that TRL will log the rewards under, known before it loads any reward model.

    None where they are not known yet: an environment that a function makes may have a reward of its own.
    """
    names = []
    for function in reward_funcs if isinstance(reward_funcs, list) else [reward_funcs] if reward_funcs else []:
        if isinstance(function, str | nn.Module):
            model_id = function if isinstance(function, str) else get_config_model_id(function.config)
            names.append(model_id.split("/")[-1])
        else:
            names.append(get_callable_name(function))
    factories = environment_factory.values() if isinstance(environment_factory, dict) else [environment_factory]
    for factory in dict.fromkeys(each for each in factories if each is not None):
        if not isinstance(factory, type):
            return None
        names += [factory.__name__] if hasattr(factory, "get_reward") else []
    return names


def selects_on_time(args: GRPOConfig, train_dataset: Any) -> bool:
    """Whether rows are chosen by us; False for what only the stock trainer does, which a choosing sampler refuses."""
    if not isinstance(train_dataset, Dataset):  # which a choosing sampler has refused (`row_types`)
        return False
    num_groups = args.generation_batch_size // args.num_generations
    if is_adaptive(args) and len(train_dataset) < num_groups:
        raise ConfigurationError(
            f"train_dataset has {len(train_dataset)} rows and a generation batch takes {num_groups} distinct ones "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}). Add "
            "rows, or lower per_device_train_batch_size, steps_per_generation or gradient_accumulation_steps."
        )
    strata = args.vade_strata
    if strata is not None and strata not in train_dataset.column_names:
        raise ConfigurationError(
            f"vade_strata={strata!r} is no column of the training set, which has {train_dataset.column_names}. Set it "
            "to the column that holds each row's task or source, or to None."
        )
    if args.vade_stratify_by is not None:
        _check_stratify_by(args.vade_stratify_by, train_dataset)
    loader = args.accelerator_config
    stock_only = not args.shuffle_dataset or loader.split_batches or loader.dispatch_batches
    return len(train_dataset) >= num_groups and not stock_only


WHOLE_OR_TEXT = ("string", "large_string", "int", "uint", "bool")
"""What the names of Arrow's types begin with whose values can be labels."""


def _check_stratify_by(column: str, rows: Dataset) -> None:
    """Refuse a column that does not divide the rows into strata."""
    way_out = "Set it to the column that holds each row's task, domain or source, or to None."
    if column not in rows.column_names:
        raise ConfigurationError(
            f"vade_stratify_by={column!r} is no column of the training set, which has {rows.column_names}. {way_out}"
        )
    feature = rows.features[column]  # looked at first: to read a column of images is to decode them all
    if not isinstance(feature, Value | ClassLabel) or not feature.dtype.startswith(WHOLE_OR_TEXT):
        raise ConfigurationError(
            f"vade_stratify_by={column!r} is a column of {abbreviated(feature)}, and a label is a text, a whole "
            f"number or a bool. {way_out}"
        )
    labels = rows.with_format(None)[column][:]
    without = [row for row, label in enumerate(labels) if label is None or label == ""]
    if without:
        raise ConfigurationError(
            f"vade_stratify_by={column!r}: {len(without)} of the {len(labels)} rows have no label there, the first "
            f"is row {without[0]}, so it is not known whose share is theirs. Give them one, such as 'other', or leave "
            "these rows out."
        )
    values = len(set(labels))
    if values == 1 or 2 * values > len(labels):
        reason = "so no row is chosen otherwise than without it"
        if values > 1:
            reason = "fewer than two rows for each, which leaves nothing to choose within it: that looks like an id"
        raise ConfigurationError(
            f"vade_stratify_by={column!r}: {values} values for {len(labels)} rows, {reason}. {way_out}"
        )


STOCK_ONLY = (
    "a stream (IterableDataset), fewer rows than a generation batch takes, shuffle_dataset=False, "
    "accelerator_config.split_batches or dispatch_batches, or a subclass with a sampler or loader of its own"
)
NOT_REFILLED = {
    "tools": "a completion with tool calls is more than its tokens (what the tools answered, masks, images), and TRL "
    "1.16 has no place where it could be put together again without calling them once more",
    "environment_factory": "TRL 1.16 resets an environment for each completion of a batch that is put together, and "
    "the prompts would be others than those that were answered",
    "rollout_func": "it returns prompts, completions and fields of its own for one batch, and TRL 1.16 has no place "
    "where parts of several could be put together",
}


def refuse_refills(args: GRPOConfig, arguments: Mapping[str, Any], *, chosen_here: bool) -> None:
    """Refuse dynamic sampling where a batch cannot be put together from the groups of several draws.

    Args:
        args: with VADE's fields.
        arguments: of the trainer.
        chosen_here: whether rows are chosen by us.
    """
    if not args.vade_dynamic_sampling:
        return
    for name, reason in NOT_REFILLED.items():
        if arguments.get(name):
            raise ConfigurationError(
                f"vade_dynamic_sampling=True with {name}: a generation batch is put together from the groups that "
                f"have a gradient, of several draws. But {reason}. Set vade_dynamic_sampling=False."
            )
    if not chosen_here:
        raise ConfigurationError(
            "vade_dynamic_sampling=True with settings under which vade_sampler='uniform' is the stock trainer, where "
            f"nobody could draw the rows of a refill: {STOCK_ONLY}. Change these, or set vade_dynamic_sampling=False."
        )


def refuse_publication(args: GRPOConfig, *, chosen_here: bool) -> None:
    """Refuse to publish a posterior where there is none, since rows are not chosen by us."""
    if args.vade_posterior_hub_id is not None and not chosen_here:
        raise ConfigurationError(
            f"vade_posterior_hub_id={args.vade_posterior_hub_id!r} with settings under which vade_sampler='uniform' "
            f"is the stock trainer and keeps no posterior: {STOCK_ONLY}. Change these, or set "
            "vade_posterior_hub_id=None."
        )


def drop_overlong(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Leave rows of more than `args.vade_max_prompt_length` prompt tokens out of the data sets, and say how many.

    TRL 1.16 cuts no prompt: such a row would end the run at the step that comes to it. Each node's main process counts
    first and the others read its cache. Rows that live in memory have none (see `row_values`): there the others
    count after it, and every start counts again.

    Args:
        arguments: of the trainer, changed in place: `train_dataset`, `eval_dataset`, and `processing_class`, which is
            loaded here where TRL would load it.
        args: with VADE's fields. With `vade_max_prompt_length=None` nothing is done.

    Raises:
        ConfigurationError: a set whose prompts are all too long, or cannot be counted before training.
        ImageDecodeError: an image of a row cannot be read.
    """
    if args.vade_max_prompt_length is None:
        return
    for name in ("train_dataset", "eval_dataset"):
        _refuse_uncountable(name, arguments)
    if arguments.get("processing_class") is None:
        arguments["processing_class"] = _load_processing_class(arguments["model"], args)
    counter = PromptCounter(arguments["processing_class"], args.chat_template_kwargs, arguments.get("tools"))
    with args.main_process_first(desc="counting the tokens of the prompts"):
        for name in ("train_dataset", "eval_dataset"):
            rows = arguments.get(name)
            if isinstance(rows, Mapping):
                arguments[name] = {part: _shorter(rows[part], counter, args, f"{name}[{part!r}]") for part in rows}
            elif rows is not None:
                arguments[name] = _shorter(rows, counter, args, name)


def _refuse_uncountable(name: str, arguments: Mapping[str, Any]) -> None:
    reason = None
    if arguments.get("environment_factory") is not None:
        reason = "an environment, whose `reset` writes a part of each prompt when the row is due"
    rows = arguments.get(name)
    for part in rows.values() if isinstance(rows, Mapping) else [] if rows is None else [rows]:
        if not isinstance(part, Dataset):
            reason = f"{name} being {type(part).__name__}, whose rows are not known before they are due"
        elif part.format["type"] is None and "prompt" not in part.column_names:
            reason = f"{name} having no column 'prompt' (it has {part.column_names})"
    if reason:
        raise ConfigurationError(
            f"vade_max_prompt_length does not go with {reason}: the tokens of all prompts are counted before "
            "training. Load the rows without streaming (datasets.Dataset), or set vade_max_prompt_length=None."
        )


def _load_processing_class(model: Any, args: GRPOConfig) -> Any:
    """As TRL 1.16 does where it is given none."""
    by_name = isinstance(model, str)
    return AutoProcessor.from_pretrained(
        model if by_name else get_config_model_id(model.config),
        revision=(args.model_init_kwargs or {}).get("revision") if by_name else None,
        truncation_side="left",
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
    )


def _shorter(rows: Dataset, counter: PromptCounter, args: GRPOConfig, name: str) -> Dataset:
    """`rows` without those whose prompt is too long."""
    lengths, most = prompt_lengths(rows, counter), args.vade_max_prompt_length
    kept = np.flatnonzero(lengths <= most)
    if len(kept) == len(rows):
        logger.info(
            f"{name}: no prompt has more than {lengths.max(initial=0)} tokens (vade_max_prompt_length={most})."
        )
        return rows
    if not len(kept):
        raise ConfigurationError(
            f"vade_max_prompt_length={most} and all {len(rows)} prompts of {name} are longer, images included: the "
            f"shortest has {lengths.min()} tokens. Set it to the longest prompt that training has room for, lower the "
            "image processor's size (max_pixels), or set None to keep every row."
        )
    logger.warning(
        f"{name}: {len(rows) - len(kept)} of {len(rows)} rows are left out, since their prompts have more than "
        f"vade_max_prompt_length={most} tokens, images included; the longest has {lengths.max()}."
    )
    return rows.select(kept)
