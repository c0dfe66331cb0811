"""The arguments of `trl-vade train` and `trl-vade plan` beside those of TRL and of the trainer. They load no torch."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trl.scripts.utils import HfArgumentParser, ScriptArguments

from trl_vade.errors import ConfigurationError
from trl_vade.trainer.docstring_help import help_from_docstring

from .recipes import recipe_file


@help_from_docstring
@dataclass
class CommandArguments:
    """Flags of the command, which decide how the recipe is read. Those named `plan_` matter only to a plan.

    Args:
        recipe: Recipe of the package, in place of --config: quickstart, or
            qwen2_5_vl_{3b,7b}_{grpo,gspo}_{vade,vanilla}.
        accelerate_config: Start the processes by accelerate's launcher with this configuration: a file, or a name
            (fsdp2, fsdp2_multi_node, deepspeed_zero2, deepspeed_zero3). Options of the launcher, such as
            --num_processes 8, go with it. Without it there is one process, or those of a launcher around the command.
        plan: Print what the recipe means (batches, updates, rollouts) and train nothing.
        plan_accelerate: Accelerate configuration (a file or a name) whose number of processes is planned for.
            Default: that of --accelerate_config, else WORLD_SIZE or 1 processes.
        plan_processes: Number of processes, in place of that of the configuration.
        plan_rows: Rows of the training split. Without it the data set is loaded from its folder.
    """

    recipe: str | None = None
    accelerate_config: str | None = None
    plan: bool = False
    plan_accelerate: str | None = None
    plan_processes: int | None = None
    plan_rows: int | None = None


@help_from_docstring
@dataclass
class VADEScriptArguments(CommandArguments, ScriptArguments):
    """The data to train on, the rewards, and benchmarks during the training.

    Args:
        reward_funcs: Reward functions: names of trl.rewards (accuracy_reward, think_format_reward, ...) or dotted
            import paths (my_package.rewards.my_reward). --vade_success_reward names the one that says success.
        testbed_seed: Seed of the embedded data set and model.
        lmms_tasks: Benchmarks that lmms-eval runs during the training: testbed, scienceqa_img, chartqa, ... (as with
            `trl-vade evaluate`, without those that need a judge). Needs the extra `eval`.
        lmms_steps: Optimiser steps from one of these evaluations to the next.
        lmms_limit: Questions of each benchmark in these evaluations.
        lmms_data: TASK=FOLDER with the rows of a benchmark, in place of the Hub; `mixture` needs one.
        lmms_instruction: Text added to every question; `mixture` stands for that of the training mixture.
    """

    reward_funcs: list[str] = field(default_factory=lambda: ["accuracy_reward"])
    testbed_seed: int = 0
    lmms_tasks: list[str] = field(default_factory=list)
    lmms_steps: int = 100
    lmms_limit: int = 64
    lmms_data: list[str] = field(default_factory=list)
    lmms_instruction: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.reward_funcs, str):  # a recipe may name one without brackets
            self.reward_funcs = [self.reward_funcs]

    def lmms_options(self) -> dict[str, Any]:
        """Return the arguments of `VADEEvalCallback` beside the trainer; empty without `lmms_tasks`.

        Raises:
            ConfigurationError: `lmms_data` is not of the form TASK=FOLDER, or nothing would read it.
        """
        pairs = [text.partition("=") for text in self.lmms_data]
        if not all(name and folder for name, _, folder in pairs) or (pairs and not self.lmms_tasks):
            raise ConfigurationError(
                f"--lmms_data {' '.join(self.lmms_data)}: write TASK=FOLDER, and name the task in --lmms_tasks."
            )
        if not self.lmms_tasks:
            return {}
        return {
            "tasks": self.lmms_tasks,
            "every_steps": self.lmms_steps,
            "limit": self.lmms_limit,
            "data": {name: Path(folder) for name, _, folder in pairs},
            "instruction": self.lmms_instruction,
        }


def read_command(arguments: list[str]) -> tuple[CommandArguments, list[str]]:
    """Split `arguments` into the flags of the command and the arguments of the run, where a recipe is a `--config`.

    An unknown recipe, a second one, and a `--config` without a path are a `ConfigurationError`.
    """
    arguments = [part for word in arguments for part in word.split("=", 1 if word.startswith("--config=") else 0)]
    parser = HfArgumentParser(CommandArguments, add_help=False, allow_abbrev=False)
    command, rest = parser.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if rest.count("--config") > 1 or rest[-1:] == ["--config"]:
        raise ConfigurationError("--config takes one recipe. Give it once, with the path of the file after it.")
    if command.recipe is None:
        return command, rest
    if "--config" in rest:
        raise ConfigurationError(f"--recipe {command.recipe} and --config name two recipes. Give one of them.")
    return command, ["--config", str(recipe_file(command.recipe)), *rest]


def refuse_command_in_recipe(script_args: VADEScriptArguments) -> None:
    """Refuse flags of the command in a recipe: they are read before it, and would be passed over."""
    for option in fields(CommandArguments):
        value = getattr(script_args, option.name)
        if value != option.default:
            raise ConfigurationError(
                f"The recipe sets {option.name}={value!r}. This option decides how the recipe is read, so it is a "
                f"flag of the command: give --{option.name} there."
            )
