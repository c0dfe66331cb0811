"""Do the arguments of a trainer fit together: data, rewards, model? Asked before a model is loaded."""

import inspect
from collections.abc import Mapping
from typing import Any

from accelerate.logging import get_logger
from datasets import ClassLabel, Dataset, Value
from trl import GRPOConfig
from trl.trainer.utils import get_config_model_id

from trl_vade.data.columns import pass_rates, refuse_columns
from trl_vade.data.prompt_lengths import drop_overlong
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.rewards.functions import refuse_rows
from trl_vade.samplers.own import find_sampler
from trl_vade.selection.success import success_name

from .grpo_config import VADE_DEFAULTS, VADEGRPOConfig, with_vade_defaults
from .presets import column_of, is_adaptive, is_own, setting
from .seams import check_seams, owner_of
from .variants import lay_out_variants, variant_rows

logger = get_logger(__name__)

READ_BEFORE = ("vade_max_prompt_length", "vade_variants")  # settings for which every row is read before training
SETTLED = "_vade_sampler_settled"  # marks settings whose sampler is not the user's choice
PASSED = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What TRL 1.16 passes to a reward function beside the columns."""
LIBRARIES = ("transformers", "trl", "trl_vade")  # whose trainers load the rows as VADE expects it


def look_over(arguments: dict[str, Any], trainer_class: type) -> bool:
    """Refuse arguments that cannot work, and return whether VADE chooses the rows. All processes must take part.

    The trainer's `arguments` are changed in place: `args`, with `vade_variants` and `vade_max_prompt_length` the data
    sets, and with the latter the processing class. Libraries that lack something are a `LibraryError`, and settings or
    data that cannot work a `ConfigurationError`.
    """
    arguments["args"] = args = resolve_args(arguments.get("args"), arguments["model"])
    check_seams(args, logger.warning)
    if is_own(args):
        find_sampler(setting(args, "sampler"))
    refuse_rows(arguments.get("reward_funcs"), arguments.get("train_dataset"), arguments.get("eval_dataset"))
    lay_out_rows(arguments, args)
    if owner_of(trainer_class, "_calculate_rewards").__module__.partition(".")[0] in LIBRARIES:
        _refuse_reward_functions(args, arguments)
    chooses = settle_choice(args, arguments.get("train_dataset"), trainer_class)
    if args.vade_dynamic_sampling:
        _refuse_refills(arguments, owner_of(trainer_class, "_generate_and_score_completions"))
    return chooses


def resolve_args(args: GRPOConfig | None, model: Any) -> GRPOConfig:
    """Return `args` with VADE's fields. For None, return defaults with an output directory named after `model`."""
    if args is not None and vars(args).pop(SETTLED, False):  # for another trainer with the same `args`
        args.vade_sampler = None
    if args is None:
        model_id = model if isinstance(model, str) else get_config_model_id(model.config)
        args = VADEGRPOConfig(f"{model_id.split('/')[-1]}-VADE")
    return with_vade_defaults(args)


def lay_out_rows(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Refuse data sets that TRL or a setting cannot read, and leave out overlong rows and what variants leave out."""
    later = arguments.get("environment_factory") is not None
    for name, of_all in {"train_dataset": READ_BEFORE, "eval_dataset": READ_BEFORE[:1]}.items():
        rows = arguments.get(name)
        for part in rows.values() if isinstance(rows, Mapping) else [] if rows is None else [rows]:
            refuse_columns(name, part, prompts_come_later=later)
            if {"video", "videos"} & {*(getattr(part, "features", None) or ())}:
                logger.warning(f"{name} has a column of videos: TRL 1.16 gives it to rewards, not to the model.")
            for setting_name in of_all:
                if getattr(args, setting_name) is not None and (later or not isinstance(part, Dataset)):
                    raise ConfigurationError(
                        f"{setting_name}={getattr(args, setting_name)!r} with {name} of type {type(part).__name__}"
                        f"{' and an environment' * later}: it reads every prompt before training, and some are known "
                        f"only then. Load the rows without streaming (datasets.Dataset), or set {setting_name}=None."
                    )
    drop_overlong(arguments, args)
    lay_out_variants(arguments, args)  # an overlong original takes its variants along


def why_not_chosen(args: GRPOConfig, rows: Any, trainer_class: type) -> str | None:
    """Return why no sampler can choose the rows of a run, so that it is plain GRPO, or None.

    Too few rows for a generation batch are a `ConfigurationError`: TRL would end at step 0 without a word.
    """
    if not isinstance(rows, Dataset):
        return (
            f"train_dataset is of type {type(rows).__name__}, and a sampler chooses rows by their numbers: pass a "
            "datasets.Dataset, one split that is not streamed"
        )
    for name in ("_get_train_sampler", "get_train_dataloader"):
        owner = owner_of(trainer_class, name)
        if owner.__module__.partition(".")[0] not in LIBRARIES:
            return f"{owner.__name__}.{name} decides which rows are loaded"
    groups = args.generation_batch_size // args.num_generations
    if len(rows) < groups:
        raise ConfigurationError(
            f"train_dataset has {len(rows)} rows, and a generation batch takes {groups} distinct ones "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}): nothing "
            "would be trained. Lower per_device_train_batch_size, steps_per_generation or "
            "gradient_accumulation_steps, or pass more rows."
        )
    if not args.shuffle_dataset:
        return "shuffle_dataset=False asks for the rows in file order"
    for name in ("split_batches", "dispatch_batches"):
        if getattr(args.accelerator_config, name):
            return f"accelerator_config.{name}=True lets one process read the rows for all"
    return None


def settle_choice(args: GRPOConfig, rows: Any, trainer_class: type) -> bool:
    """Return whether a sampler can choose from `rows`. Else make the run uniform, and say so.

    `vade_sampler` is then set to `"uniform"` in `args`, and a mark that tells it from the user's. A setting that
    does not fit the rows, or asks for a sampler that cannot choose, is a `ConfigurationError`.
    """
    reason = why_not_chosen(args, rows, trainer_class)
    if reason is None:
        check_stratify_by(args, rows)
        variant_rows(rows, args)
        if column := column_of(args):
            pass_rates(rows, column)
        return True
    if args.vade_sampler is not None and is_adaptive(args):
        raise ConfigurationError(
            f"vade_sampler={args.vade_sampler!r} cannot choose rows: {reason}. Change that, or set "
            "vade_sampler='uniform', which leaves the rows to TRL."
        )
    logger.warning(plain := f"This run is plain GRPO, without a posterior and without vade/ metrics: {reason}.")
    needing = ["vade_variants", "vade_dynamic_sampling", "vade_stratify_by", "vade_posterior_hub_id"]
    for name in needing + ["vade_posterior_init"] * (args.vade_posterior_init != "prior"):
        if getattr(args, name):
            raise ConfigurationError(
                f"{name}={getattr(args, name)!r} needs a posterior or refills. {plain} Set {VADE_DEFAULTS[name]!r}."
            )
    if args.vade_sampler is None:
        args.vade_sampler, vars(args)[SETTLED] = "uniform", True
    return False


def check_stratify_by(args: GRPOConfig, rows: Dataset) -> None:
    """Refuse a column `vade_stratify_by` that does not divide the rows into strata."""
    if (column := args.vade_stratify_by) is None:
        return
    if column not in rows.column_names:
        raise ConfigurationError(
            f"vade_stratify_by={column!r}: the training set has no such column, but {', '.join(rows.column_names)}. "
            "Set it to the column with the task, domain or source of each row, or to None."
        )
    feature = rows.features[column]  # looked at first, because reading a column of images decodes them all
    labels = rows.with_format(None)[column][:] if isinstance(feature, Value | ClassLabel) else []
    missing = (None, "", -1) if isinstance(feature, ClassLabel) else (None, "")  # datasets writes -1
    without = [row for row, label in enumerate(labels) if label in missing]
    if not labels or without or isinstance(labels[0], float) or not 1 < len({*labels}) <= len(labels) / 2:
        raise ConfigurationError(
            f"vade_stratify_by={column!r} must be a column of texts or whole numbers with a label in each row, and at "
            f"least two labels, each for two rows on average. "
            f"This one is {abbreviated(feature)} with {len({*labels})} values in {len(rows)} rows, and "
            f"{len(without)} rows have none (first: row {without[0] if without else '-'}). Set it to the column with "
            "the task, domain or source of each row, or to None."
        )


def _refuse_reward_functions(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Refuse reward functions that TRL 1.16 cannot call on the rows (`GRPOTrainer._calculate_rewards`)."""
    given = arguments.get("reward_funcs")
    given = given if isinstance(given, list) else [given]
    functions = [each for each in given if inspect.isroutine(each)]
    if len(functions) == len(given) and arguments.get("environment_factory") is None:  # it may bring a reward
        success_name([each.__name__ for each in functions], args.vade_success_reward)
    later = any(arguments.get(name) for name in ("environment_factory", "rollout_func"))  # they may add columns
    for name in ("train_dataset", "eval_dataset"):
        rows = arguments.get(name)
        for part in rows.values() if isinstance(rows, Mapping) else [rows]:
            if not isinstance(part, Dataset) or part.format["type"] == "custom":
                continue  # a transform may add columns
            columns = [each for each in part.column_names if each not in ("prompt", "completion")]
            if args.remove_unused_columns:
                columns = [each for each in columns if each in ("image", "images")]
            passed = dict.fromkeys([*columns, *PASSED])
            for function in functions:
                signature = inspect.signature(function)
                try:
                    (signature.bind_partial if later else signature.bind)(**passed)
                except TypeError as error:
                    raise ConfigurationError(
                        f"{function.__name__}{signature} cannot be called on {name}: {error}. TRL passes "
                        f"{', '.join(PASSED)} and the columns {', '.join(columns)}, each by its name. Let it take "
                        "**kwargs, and name only columns that there are."
                    ) from None


def _refuse_refills(arguments: Mapping[str, Any], owner: type) -> None:
    """Refuse dynamic sampling where TRL cannot combine a batch from the groups of several draws."""
    if not owner.__module__.startswith("trl_vade."):  # it may change the prompts
        raise ConfigurationError(
            f"vade_dynamic_sampling=True with {owner.__name__}._generate_and_score_completions: the method would "
            "not see the rows of refills. Set vade_dynamic_sampling=False."
        )
    for name in ("tools", "environment_factory", "rollout_func"):
        if arguments.get(name):
            raise ConfigurationError(
                f"vade_dynamic_sampling=True with {name}: TRL 1.16 cannot prepare completions of several draws again "
                "without new calls, resets or fields of their own. Set vade_dynamic_sampling=False."
            )
