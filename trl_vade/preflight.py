"""What a trainer is given, looked at before a model is loaded or a GPU is touched."""

from collections.abc import Mapping
from typing import Any

from accelerate.logging import get_logger
from datasets import Dataset
from torch import nn
from trl import GRPOConfig
from trl.trainer.utils import get_callable_name, get_config_model_id

from .config import VADEGRPOConfig, with_vade_defaults
from .errors import ConfigurationError
from .feedback import success_column
from .presets import chooses, vade

logger = get_logger(__name__)


def resolve_args(args: GRPOConfig | None, model: Any) -> GRPOConfig:
    """`args` with VADE's fields. Where it is None, the defaults in a folder named after the model, as TRL does."""
    if args is None:
        model_id = model if isinstance(model, str) else get_config_model_id(model.config)
        args = VADEGRPOConfig(f"{model_id.split('/')[-1]}-VADE")
    return with_vade_defaults(args)


def reward_names(reward_funcs: Any) -> list[str]:
    """The names that TRL will log the reward functions under, known before it loads any reward model."""
    functions = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    names = []
    for function in functions:
        if isinstance(function, str | nn.Module):
            model_id = function if isinstance(function, str) else get_config_model_id(function.config)
            names.append(model_id.split("/")[-1])
        else:
            names.append(get_callable_name(function))
    return names


def declares_success(args: GRPOConfig, reward_names: list[str]) -> bool:
    """Whether it is clear which reward means success. A choosing sampler refuses what is not; uniform does without."""
    if chooses(args) or args.vade_success_reward is not None:
        success_column(reward_names, args.vade_success_reward)
    elif len(reward_names) > 1:
        logger.warning(
            f"vade_sampler='uniform' with {len(reward_names)} reward functions and no vade_success_reward: this is "
            "stock GRPO, without a posterior and without vade/ metrics. Set vade_success_reward to have them."
        )
        return False
    return True


def selects_on_time(args: GRPOConfig, train_dataset: Any) -> bool:
    """Whether rows are chosen by us; False for what only the stock trainer does, which a choosing sampler refuses."""
    if not isinstance(train_dataset, Dataset):
        if chooses(args):
            raise ConfigurationError(
                f"train_dataset is {type(train_dataset).__name__} and vade_sampler={vade(args, 'sampler')!r}: "
                "choosing rows needs a data set whose rows have numbers. Load it without streaming "
                "(datasets.Dataset), or set vade_sampler='uniform'."
            )
        return False
    num_groups = args.generation_batch_size // args.num_generations
    if chooses(args) and len(train_dataset) < num_groups:
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
    loader = args.accelerator_config
    stock_only = not args.shuffle_dataset or loader.split_batches or loader.dispatch_batches
    return len(train_dataset) >= num_groups and not stock_only


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
        chosen_here: whether rows are chosen by us, and success is declared.
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
            "nobody could draw the rows of a refill: a stream (IterableDataset), fewer rows than a generation batch "
            "takes, shuffle_dataset=False, accelerator_config.split_batches or dispatch_batches, or several reward "
            "functions without vade_success_reward. Change these, or set vade_dynamic_sampling=False."
        )
