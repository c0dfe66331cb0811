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

from .config_checks import validate
from .grpo_config import VADE_DEFAULTS, VADEGRPOConfig, with_vade_defaults
from .initial_posterior import read_warm_start
from .overlong import drop_overlong
from .own_sampler import find_sampler
from .presets import is_adaptive, is_own, setting
from .seams import check_seams
from .selection_choice import make_signal
from .variants import lay_out_variants, variant_rows
from .warm_start import WarmStart

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
    arguments["args"] = args = resolve_args(arguments.get("args"), arguments["model"])
    check_seams(args, logger.warning)
    if is_own(args):
        find_sampler(setting(args, "sampler"))
    names = reward_names(arguments.get("reward_funcs"), arguments.get("environment_factory"))
    success = make_signal(args, names).facts["success_reward"] if names else None
    refuse_unreadable(arguments)
    refuse_rows(arguments.get("reward_funcs"), arguments.get("train_dataset"), arguments.get("eval_dataset"))
    drop_overlong(arguments, args)
    lay_out_variants(arguments, args)  # an overlong original takes its variants along
    rows = arguments.get("train_dataset")
    reason = why_not_chosen(args, rows, trainer_class)
    settle_sampler(args, reason)
    _refuse_refills(args, arguments)
    if reason is None:
        check_stratify_by(args, rows)
        variant_rows(rows, args)
    return Preflight(reason is None, read_warm_start(args, rows, success_reward=success))


def resolve_args(args: GRPOConfig | None, model: Any) -> GRPOConfig:
    """Return `args` with VADE's fields. For None, return defaults with an output directory named after `model`."""
    if isinstance(getattr(args, "vade_sampler", None), NotAsked):  # chosen for another trainer with the same `args`
        args.vade_sampler = None
    if args is None:
        model_id = model if isinstance(model, str) else get_config_model_id(model.config)
        args = VADEGRPOConfig(f"{model_id.split('/')[-1]}-VADE")
    return with_vade_defaults(args)


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


def why_not_chosen(args: GRPOConfig, rows: Any, trainer_class: type) -> str | None:
    """Return why no sampler can choose the rows of a run, so that it is plain GRPO, or None."""
    if not isinstance(rows, Dataset):
        return (
            f"train_dataset is of type {type(rows).__name__}, and a sampler chooses rows by their numbers: pass a "
            "datasets.Dataset, one split that is not streamed"
        )
    groups = args.generation_batch_size // args.num_generations
    if len(rows) < groups:
        return (
            f"train_dataset has {len(rows)} rows, and a generation batch takes {groups} distinct ones "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}; lower "
            "per_device_train_batch_size, steps_per_generation or gradient_accumulation_steps)"
        )
    if not args.shuffle_dataset:
        return "shuffle_dataset=False asks for the rows in file order"
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            return f"accelerator_config.{name}=True lets one process read the rows for all"
    for name in ("_get_train_sampler", "get_train_dataloader"):
        owner: Any = next(kind for kind in trainer_class.__mro__ if name in vars(kind))
        if owner.__module__.partition(".")[0] not in LIBRARIES:
            return f"{owner.__name__}.{name} decides which rows are loaded"
    return None


def settle_sampler(args: GRPOConfig, reason: str | None) -> None:
    """Make a run uniform for which there is a `reason` against a choice, and say so; refuse if a choice was asked for.

    `vade_sampler` is set to `"uniform"` in `args`, as a text that another trainer with the same `args` does not take
    for the user's.

    Raises:
        ConfigurationError: `vade_sampler`, or a setting that needs a posterior, was set.
    """
    if reason is None:
        return
    plain = f"This run is plain GRPO, without a posterior and without vade/ metrics: {reason}."
    if args.vade_sampler is not None and is_adaptive(args):
        raise ConfigurationError(
            f"vade_sampler={args.vade_sampler!r} cannot choose rows: {reason}. Change that, or set "
            "vade_sampler='uniform', which leaves the rows to TRL."
        )
    args.vade_sampler = args.vade_sampler or NotAsked("uniform")
    logger.warning(plain)
    validate(args, VADEGRPOConfig)
    for name in ("vade_variants", "vade_dynamic_sampling", "vade_posterior_hub_id"):
        if getattr(args, name):
            raise ConfigurationError(
                f"{name}={getattr(args, name)!r} needs a posterior or refills. {plain} Change that, or set "
                f"{name}={VADE_DEFAULTS[name]!r}."
            )


class NotAsked(str):
    """The value of a setting that the trainer chose."""

    def __reduce__(self) -> Any:
        return str, (str(self),)


WHOLE_OR_TEXT = ("string", "large_string", "int", "uint", "bool")
"""Prefixes of the names of Arrow types whose values can be labels."""


def check_stratify_by(args: GRPOConfig, rows: Dataset) -> None:
    """Refuse a column `vade_stratify_by` that does not divide the rows into strata."""
    if (column := args.vade_stratify_by) is None:
        return
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


def _refuse_refills(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Refuse dynamic sampling where TRL cannot combine a batch from the groups of several draws."""
    for name in ("tools", "environment_factory", "rollout_func"):
        if args.vade_dynamic_sampling and arguments.get(name):
            raise ConfigurationError(
                f"vade_dynamic_sampling=True with {name}: a generation batch is made of several draws. "
                "TRL 1.16 cannot prepare such completions again without new calls, resets or fields of their own. "
                "Set vade_dynamic_sampling=False."
            )
