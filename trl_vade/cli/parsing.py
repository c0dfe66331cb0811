"""The arguments of a training, read by TRL's parser, whose refusals are one sentence here."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser
from trl import ModelConfig, ScriptArguments, TrlParser

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.settings import help_from_docstring
from trl_vade.trainer.grpo_config import VADEGRPOConfig

from .recipes import load_splits, meant, recipe_file

REFUSALS = (ValueError, TypeError, OSError, ImportError, RuntimeError, yaml.YAMLError)
"""What TRL, transformers and accelerate raise for settings that cannot work, before anything is trained."""


@help_from_docstring
@dataclass
class CommandArguments:
    """Flags of the command, which decide how the recipe is read.

    Args:
        recipe: Recipe of the package, in place of --config: quickstart, or
            qwen2_5_vl_{3b,7b}_{grpo,gspo}_{vade,vanilla}.
        accelerate_config: Start the processes by accelerate's launcher with this configuration: a file, or a name
            (fsdp2, fsdp2_multi_node, deepspeed_zero2, deepspeed_zero3). Options of the launcher go with it. Without
            it there is one process, or those of a launcher around the command.
        num_processes: Number of processes, in place of that of --accelerate_config; also for a plan.
    """

    recipe: str | None = None
    accelerate_config: str | None = None
    num_processes: int | None = None


@help_from_docstring
@dataclass
class VADEScriptArguments(CommandArguments, ScriptArguments):
    """The data to train on, and the rewards.

    Args:
        plan_rows: Rows of the training split, for a plan of a data set that is not here.
        plan_processes: Processes that a recipe is for: a plan counts with them unless the command says another number.
        reward_funcs: Reward functions: names of trl.rewards (accuracy_reward, think_format_reward, ...) or dotted
            import paths (my_package.rewards.my_reward). --vade_success_reward names the one that says success.
        testbed_seed: Seed of the embedded data set and model.
    """

    plan_rows: int | None = None
    plan_processes: int = 1
    reward_funcs: list[str] = field(default_factory=lambda: ["accuracy_reward"])
    testbed_seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.reward_funcs, str):  # a recipe may name one without brackets
            self.reward_funcs = [self.reward_funcs]

    def load_splits(self) -> Any:
        """Load the data set by its name, or raise `ConfigurationError`."""
        name, config, streaming = self.dataset_name, self.dataset_config, self.dataset_streaming
        return load_splits(str(name), config, streaming=streaming, seed=self.testbed_seed)


def read_command(arguments: list[str]) -> tuple[CommandArguments, list[str]]:
    """Split `arguments` into the command's flags and those of the run, in which the one recipe is a `--config`."""
    words = [part for word in arguments for part in word.split("=", 1 if word.startswith("--config=") else 0)]
    parser = HfArgumentParser(CommandArguments, add_help=False, allow_abbrev=False)
    command, rest = parser.parse_args_into_dataclasses(words, return_remaining_strings=True, look_for_args_file=False)
    if rest.count("--config") + (command.recipe is not None) > 1 or rest[-1:] == ["--config"]:
        raise ConfigurationError("Name one recipe, and once: --recipe NAME, or --config with the path of a file.")
    return command, rest if command.recipe is None else ["--config", str(recipe_file(command.recipe)), *rest]


class Parser(TrlParser):
    """Reads flags and a recipe as `VADEScriptArguments`, a configuration of the class `config` and a `ModelConfig`."""

    def __init__(self, config: type = VADEGRPOConfig):
        super().__init__((VADEScriptArguments, config, ModelConfig), add_help=False, allow_abbrev=False)
        self.add_argument("--config", help="A recipe of your own, a file in YAML. A flag goes before its values.")

    def read(self, arguments: list[str]) -> tuple[Any, ...]:
        """Return an object for each dataclass, or raise `ConfigurationError` where an option or a value is wrong."""
        try:
            *read, _, words = self.parse_args_and_config(arguments, return_remaining_strings=True)
        except REFUSALS as error:
            raise ConfigurationError(" ".join(str(error).split())) from error
        self.refuse_unknown(words)
        return tuple(read)

    def refuse_unknown(self, words: list[str], others: Iterable[str] = ()) -> None:
        """Refuse `words` that the parser left over, unless they are options named in `others` with their values."""
        known = [*(action.dest for action in self._actions), *others]
        for flag in [word.split("=")[0] for word in words if word.startswith("-")] or words[:1]:
            name = flag.lstrip("-").replace("-", "_")
            if name not in known or not flag.startswith("-"):
                see = "See `trl-vade train --help-all`."
                raise ConfigurationError(f"{flag} is no option.{meant(name, known, '--')} {see}")

    def set_defaults_with_config(self, **config: Any) -> list[str]:
        """Take over the values of a recipe, as TRL does, and refuse keys that no recipe has."""
        flags = ["config", *(option.name for option in fields(CommandArguments))]  # they are read before the recipe
        known = [action.dest for action in self._actions if action.dest not in flags]
        for name, value in config.items():
            if name not in known:
                way = f" Give the flag --{name}." if name in flags else meant(name, known)
                raise ConfigurationError(f"The recipe sets {name}={abbreviated(value)}: no such setting.{way}")
        return super().set_defaults_with_config(**config)

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigurationError`; argparse would print hundreds of lines of usage."""
        raise ConfigurationError(f"{message}.")
