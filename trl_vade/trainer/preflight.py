"""What a trainer is given, looked at before a model is loaded or a GPU is touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets import ClassLabel, Dataset, Value
from torch import nn
from trl import GRPOConfig
from trl.trainer.utils import get_callable_name, get_config_model_id

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.selection.warm_start import WarmStart

from .checkpoint.reference_model import refuse_reference_sync
from .grpo_config import VADEGRPOConfig, with_vade_defaults
from .initial_posterior import read_warm_start
from .overlong import drop_overlong
from .own_loaders import brings_own_loader
from .presets import is_adaptive
from .row_types import refuse_unnumbered
from .selection_choice import make_signal


@dataclass(frozen=True)
class Preflight:
    """What is known of a run before a model is loaded."""

    on_time: bool  # whether rows are chosen by us
    warm_start: WarmStart | None  # the evidence to begin with, where it was read


def look_over(arguments: dict[str, Any], trainer_class: type) -> Preflight:
    """Refuse what a trainer cannot work with, and fill in `args`. All processes must take part.

    Args:
        arguments: of the trainer, changed in place: `args`, and with `vade_max_prompt_length` the data sets and the
            processing class.
        trainer_class: of the trainer, which may be the user's own.

    Raises:
        ConfigurationError: settings, data or reward names that cannot work.
        SnapshotError, HubError: the posterior to begin with cannot be had; see `read_warm_start`.
    """
    arguments["args"] = args = resolve_args(arguments.get("args"), arguments["model"])
    refuse_reference_sync(args, arguments)
    names = reward_names(arguments.get("reward_funcs"), arguments.get("environment_factory"))
    success = make_signal(args, names).facts["success_reward"] if names else None
    refuse_unnumbered(args, arguments)
    drop_overlong(arguments, args)
    rows = arguments.get("train_dataset")
    on_time = selects_on_time(args, rows) and not brings_own_loader(trainer_class, args)
    refuse_refills(args, arguments, chosen_here=on_time)
    refuse_publication(args, chosen_here=on_time)
    return Preflight(on_time, read_warm_start(args, rows, success_reward=success))


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
