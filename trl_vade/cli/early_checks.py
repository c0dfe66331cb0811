"""Checks of a training's arguments that take no torch: a slip is refused in a second, not after the imports.

Nothing is refused here that a training would accept. What only the libraries can judge is left to them.
"""

import ast
import os
import sys
from importlib.util import find_spec
from typing import Any

from trl_vade.errors import ConfigurationError
from trl_vade.hub.uploading import is_hub_id
from trl_vade.trainer.checkpoint.folders import find_checkpoint
from trl_vade.trainer.config_checks import check_own_settings
from trl_vade.trainer.presets import setting

from .data_sets import TESTBED
from .launching import launcher_options
from .parsing import Parser, known_config, near
from .source_classes import source_of
from .training_arguments import CommandArguments, refuse_command_in_recipe

WORLDS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PJRT_DEVICE")
"""Variables of the environment by which a launcher tells how many processes there are."""


def refuse_early(command: CommandArguments, arguments: list[str]) -> None:
    """Refuse arguments of a run or of its plan that cannot work.

    Raises:
        ConfigurationError: an option, a value, a recipe, a reward or the output directory cannot work.
        CheckpointIncompleteError: there is nothing to resume from.
    """
    others = launcher_options() if command.accelerate_config and not command.plan else ()
    script, args, model = Parser(known_config()).read(arguments, others)
    refuse_command_in_recipe(script)
    _check_own(args)
    if command.plan:
        return
    _check_places(model.model_name_or_path, script.dataset_name)
    for name in script.reward_funcs:
        _check_reward(str(name))
    _check_folder(args)
    if not others:
        _check_groups(args)


def _check_places(model: str | None, dataset: str | None) -> None:
    if not model or not dataset:
        raise ConfigurationError(
            f"model_name_or_path={model!r} and dataset_name={dataset!r}: a training needs both. Set them to folders, "
            f"to names on the Hub, or to {TESTBED!r}; or give --recipe NAME."
        )
    if not os.path.exists(model) and not is_hub_id(model):
        raise ConfigurationError(
            f"model_name_or_path={model!r} is neither a folder here nor the name of a repository on the Hub, such as "
            "user/name. Set it to one of these."
        )


def _check_own(args: Any) -> None:
    check_own_settings(args, type(args))


def _check_reward(name: str) -> None:
    top, _, rest = name.partition(".")
    if rest:
        sys.path.insert(0, "")
        try:
            missing = f"No module named {top!r}" if find_spec(top) is None else ""
        except (ValueError, ImportError):  # of a module without a spec: the import will tell
            return
        finally:
            sys.path.pop(0)
    else:
        strings = [node.value for node in ast.walk(source_of("trl.rewards")[0]) if isinstance(node, ast.Constant)]
        missing = "" if name in strings or name.startswith("_") else "trl.rewards has no such reward"
        missing += f" (did you mean {near(name, strings)}?)" if missing and near(name, strings) else ""
    if missing:
        raise refused_reward(name, missing)


def refused_reward(name: str, reason: object) -> ConfigurationError:
    """Return the refusal of a reward function that cannot be imported."""
    return ConfigurationError(
        f"--reward_funcs {name}: {reason}. Give a name of trl.rewards (accuracy_reward, think_format_reward, ...) or "
        "the import path of a function (my_package.rewards.my_reward)."
    )


def asked_checkpoint(args: Any) -> str | bool | None:
    """Return `resume_from_checkpoint`, where the words auto, true and false are no folders."""
    asked = args.resume_from_checkpoint
    return asked == "true" if asked in ("true", "false") else asked


def run_folder(args: Any) -> str:
    """Return `output_dir` with the sampler's name in it."""
    return str(args.output_dir).replace("{vade_sampler}", setting(args, "sampler"))


def _check_folder(args: Any) -> None:
    if args.output_dir is not None:
        find_checkpoint(asked_checkpoint(args), run_folder(args))


def _check_groups(args: Any) -> None:
    steps = args.steps_per_generation or args.gradient_accumulation_steps
    numbers = (args.num_generations, steps, args.per_device_train_batch_size, args.generation_batch_size or 0)
    if any(name in os.environ for name in WORLDS[1:]) or not all(isinstance(number, int) for number in numbers):
        return
    group, _, rows, batch = numbers
    batch = batch or rows * int(os.environ.get(WORLDS[0], "1")) * steps
    if group and batch % group:
        raise ConfigurationError(
            f"num_generations={group} does not divide the generation batch of {batch} completions "
            f"(generation_batch_size, or per_device_train_batch_size x processes x steps_per_generation). Set "
            f"num_generations to a divisor of {batch}, or another per_device_train_batch_size."
        )
