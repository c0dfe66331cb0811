"""Checks of a trainer's arguments, made before a model is loaded or a GPU is touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelerate.logging import get_logger
from datasets import ClassLabel, Dataset, Value
from torch import nn
from trl import GRPOConfig
from trl.trainer.utils import get_callable_name, get_config_model_id

from trl_vade.data.columns import refuse_columns
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.rewards.functions import refuse_rows
from trl_vade.selection.warm_start import WarmStart

from .grpo_config import VADE_DEFAULTS, VADEGRPOConfig, with_vade_defaults
from .initial_posterior import read_warm_start
from .overlong import drop_overlong
from .own_sampler import find_sampler
from .presets import is_adaptive, is_own, setting
from .seams import check_seams
from .selection_choice import make_signal
from .variants import lay_out_variants, variant_rows

logger = get_logger(__name__)

LIBRARIES = ("transformers", "trl", "trl_vade")
"""Packages whose trainers load the rows as VADE expects it."""


@dataclass(frozen=True)
class Preflight:
    """Facts of a run before a model is loaded."""

    on_time: bool  # whether VADE chooses the rows
    warm_start: WarmStart | None  # the evidence to start with, if it was read


def look_over(arguments: dict[str, Any], trainer_class: type) -> Preflight:
    """Refuse arguments that cannot work, and fill in `args`. All processes must take part.

    Args:
        arguments: the trainer's arguments, changed in place: `args`, with `vade_variants` and `vade_max_prompt_length`
            the data sets, and with the latter the processing class.
        trainer_class: the class of the trainer, which may be a user's subclass.

    Raises:
        LibraryError: the installed TRL or transformers lacks something that is needed.
        ConfigurationError: settings, data or reward names cannot work.
        SnapshotError: the posterior to start with is missing, damaged or of other rows.
        HubError: the posterior to start with cannot be downloaded.
    """
    check_seams()
    arguments["args"] = args = resolve_args(arguments.get("args"), arguments["model"])
    if is_own(args):
        find_sampler(setting(args, "sampler"))
    names = reward_names(arguments.get("reward_funcs"), arguments.get("environment_factory"))
    success = make_signal(args, names).facts["success_reward"] if names else None
    refuse_unnumbered(args, arguments.get("train_dataset"))
    refuse_unreadable(arguments)
    refuse_rows(arguments.get("reward_funcs"), arguments.get("train_dataset"), arguments.get("eval_dataset"))
    drop_overlong(arguments, args)
    lay_out_variants(arguments, args)  # an overlong original takes its variants along
    rows = arguments.get("train_dataset")
    on_time = selects_on_time(args, rows) and not brings_own_loader(trainer_class, args)
    _refuse_refills(args, arguments)
    if on_time:
        variant_rows(rows, args)
    else:
        _refuse_without_selection(args)
    return Preflight(on_time, read_warm_start(args, rows, success_reward=success))


def resolve_args(args: GRPOConfig | None, model: Any) -> GRPOConfig:
    """Return `args` with VADE's fields. For None, return defaults with an output directory named after `model`."""
    if args is None:
        model_id = model if isinstance(model, str) else get_config_model_id(model.config)
        args = VADEGRPOConfig(f"{model_id.split('/')[-1]}-VADE")
    return with_vade_defaults(args)


def refuse_unnumbered(args: GRPOConfig, rows: Any) -> None:
    """Raise `ConfigurationError` if the sampler cannot choose rows by their numbers."""
    if is_adaptive(args) and not isinstance(rows, Dataset):
        raise ConfigurationError(
            f"train_dataset is of type {type(rows).__name__}, and vade_sampler={setting(args, 'sampler')!r} chooses "
            "rows by their numbers. Pass a datasets.Dataset: one split, not streamed, made by "
            "datasets.Dataset.from_list of a list. Or set vade_sampler='uniform', which leaves the rows to TRL."
        )


def refuse_unreadable(arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` if TRL cannot read the columns of the training or an evaluation set."""
    later = arguments.get("environment_factory") is not None
    for name in ("train_dataset", "eval_dataset"):
        rows = arguments.get(name)
        for part in rows.values() if isinstance(rows, Mapping) else [rows]:
            refuse_columns(name, part, prompts_come_later=later)


def reward_names(reward_funcs: Any, environment_factory: Any = None) -> list[str] | None:
    """Return the names under which TRL will log the rewards, before it loads any reward model.

    Args:
        reward_funcs: the trainer's argument: a function, a model, a model's id, or a list of these.
        environment_factory: the trainer's argument.

    Returns:
        The names, or None if they are not known yet: an environment made by a function may have a reward of its own.
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
    """Return whether VADE chooses the rows. It is False for settings under which `uniform` is plain GRPO.

    Raises:
        ConfigurationError: the data set has too few rows, or lacks a column that a setting names.
    """
    if not isinstance(train_dataset, Dataset):
        return False
    num_groups = args.generation_batch_size // args.num_generations
    if is_adaptive(args) and len(train_dataset) < num_groups:
        raise ConfigurationError(
            f"train_dataset has {len(train_dataset)} rows, but a generation batch takes {num_groups} distinct rows "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}). Add "
            "rows, or lower per_device_train_batch_size, steps_per_generation or gradient_accumulation_steps."
        )
    if args.vade_stratify_by is not None:
        _check_stratify_by(args.vade_stratify_by, train_dataset)
    loader = args.accelerator_config
    stock_only = not args.shuffle_dataset or loader.split_batches or loader.dispatch_batches
    return len(train_dataset) >= num_groups and not stock_only


def brings_own_loader(trainer_class: type, args: GRPOConfig) -> bool:
    """Return whether a user's subclass decides which rows are loaded, and log that it does.

    Raises:
        ConfigurationError: it does, and `vade_sampler` chooses rows, too.
    """
    found = []
    for name in ("_get_train_sampler", "get_train_dataloader"):
        owner: Any = next(kind for kind in trainer_class.__mro__ if name in vars(kind))
        if owner.__module__.partition(".")[0] not in LIBRARIES:
            found.append(f"{owner.__name__}.{name}")
    methods = ", ".join(found)
    if found and is_adaptive(args):
        raise ConfigurationError(
            f"A subclass defines {methods}, and vade_sampler={setting(args, 'sampler')!r} chooses rows, too. Remove "
            "the method, so that the sampler chooses, or set vade_sampler='uniform', so that the method decides as in "
            "GRPOTrainer."
        )
    if found:
        logger.warning(
            f"{methods} decides which rows are loaded, so this run is plain GRPO: without a posterior and without "
            "vade/ metrics. Remove the method to get both."
        )
    return bool(found)


WHOLE_OR_TEXT = ("string", "large_string", "int", "uint", "bool")
"""Prefixes of the names of Arrow types whose values can be labels."""


def _check_stratify_by(column: str, rows: Dataset) -> None:
    """Refuse a column that does not divide the rows into strata."""
    way_out = "Set it to the column with the task, domain or source of each row, or to None."
    if column not in rows.column_names:
        raise ConfigurationError(
            f"vade_stratify_by={column!r} is not a column of the training set, which has {rows.column_names}. "
            f"{way_out}"
        )
    feature = rows.features[column]  # checked first, because reading a column of images decodes them all
    if not isinstance(feature, Value | ClassLabel) or not feature.dtype.startswith(WHOLE_OR_TEXT):
        raise ConfigurationError(
            f"vade_stratify_by={column!r} is a column of {abbreviated(feature)}, but a label is a text, a whole "
            f"number or a bool. {way_out}"
        )
    labels = rows.with_format(None)[column][:]
    without = [row for row, label in enumerate(labels) if label is None or label == ""]
    if without:
        raise ConfigurationError(
            f"vade_stratify_by={column!r}: {len(without)} of the {len(labels)} rows have no label; the first is row "
            f"{without[0]}. Set a label for them, such as 'other', or remove these rows."
        )
    values = len(set(labels))
    if values == 1 or 2 * values > len(labels):
        reason = "so it would change no choice"
        if values > 1:
            reason = "fewer than two rows for each, which leaves nothing to choose within a value: it looks like an id"
        raise ConfigurationError(
            f"vade_stratify_by={column!r}: {values} values for {len(labels)} rows, {reason}. {way_out}"
        )


STOCK_ONLY = (
    "a stream (IterableDataset), fewer rows than a generation batch takes, shuffle_dataset=False, "
    "accelerator_config.split_batches or dispatch_batches, or a subclass with a sampler or loader of its own"
)


def _refuse_without_selection(args: GRPOConfig) -> None:
    """Refuse settings that `uniform` cannot do where it is plain GRPO."""
    for name in ("vade_variants", "vade_dynamic_sampling", "vade_posterior_hub_id"):
        if getattr(args, name):
            raise ConfigurationError(
                f"{name}={getattr(args, name)!r} with settings under which vade_sampler='uniform' is plain GRPO, "
                f"without a posterior and without refills: {STOCK_ONLY}. Change these, or set "
                f"{name}={VADE_DEFAULTS[name]!r}."
            )


def _refuse_refills(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Refuse dynamic sampling where TRL cannot combine a batch from the groups of several draws."""
    for name in ("tools", "environment_factory", "rollout_func"):
        if args.vade_dynamic_sampling and arguments.get(name):
            raise ConfigurationError(
                f"vade_dynamic_sampling=True with {name}: a generation batch is made of several draws. "
                "TRL 1.16 cannot prepare such completions again without new calls, resets or fields of their own. "
                "Set vade_dynamic_sampling=False."
            )
