"""A plan on the terminal: the arguments of a training run in, its counts and its GPU memory out.

`trl-vade plan` and `scripts/train_vade.py --plan` are this. `plan` counts and `memory` estimates.
"""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser
from trl import ModelConfig, ScriptArguments, TrlParser

from .errors import ConfigurationError
from .launch import Launch, read_launch
from .tables import print_table

TESTBED = "testbed"  # as a model's or a data set's name: the embedded one
NOT_LAUNCHED = " (Planned as launched here. --plan_accelerate scripts/accelerate/fsdp2.yaml plans for that launch.)"


@dataclass
class PlanArguments:
    """What `--plan` is for; without it these do nothing."""

    plan: bool = field(
        default=False,
        metadata={"help": "Print what the recipe means (batches, updates, rollouts, GPU memory) and train nothing."},
    )
    plan_accelerate: str | None = field(
        default=None,
        metadata={
            "help": "Accelerate configuration that the run will be launched with: gives the number of processes and "
            "what they share. Without it: WORLD_SIZE processes (1 where it is not set), sharing nothing."
        },
    )
    plan_processes: int | None = field(default=None, metadata={"help": "Number of processes, in place of that one."})
    plan_rows: int | None = field(
        default=None,
        metadata={"help": "Rows of the training split. Without it the data set is loaded from its folder."},
    )
    plan_prompt_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of the longest prompt, image tokens included. Without it: vade_max_prompt_length, else "
            "vllm_max_model_length - max_completion_length."
        },
    )
    plan_image_tokens: int = field(
        default=1024,
        metadata={"help": "Image tokens of a row, on average: one for 28 x 28 pixels, so 1024 are 896 x 896 pixels."},
    )
    plan_gpu_memory: float = field(
        default=139.0, metadata={"help": "Memory of a GPU in GiB, as CUDA counts it. An H200 has 139."}
    )


@dataclass
class VADEScriptArguments(PlanArguments, ScriptArguments):
    """What to train on, and by which rewards."""

    reward_funcs: list[str] = field(
        default_factory=lambda: ["accuracy_reward"],
        metadata={
            "help": "Reward functions: names of trl.rewards (accuracy_reward, think_format_reward, ...) or dotted "
            "import paths (my_package.rewards.my_reward). With several, set --vade_success_reward."
        },
    )
    testbed_seed: int = field(default=0, metadata={"help": "Seed of the embedded data set and model."})
    lmms_tasks: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Benchmarks that lmms-eval runs during the training: testbed, scienceqa, chartqa, ... (as with "
            "`trl-vade evaluate`, without those that need a judge). Needs the extra `eval`."
        },
    )
    lmms_steps: int = field(default=100, metadata={"help": "Optimiser steps from one of these to the next."})
    lmms_limit: int = field(default=64, metadata={"help": "Questions of each benchmark in these."})
    lmms_data: list[str] = field(
        default_factory=list,
        metadata={"help": "TASK=FOLDER with the rows of a benchmark, in place of the Hub; `mixture` needs one."},
    )
    lmms_instruction: str | None = field(
        default=None, metadata={"help": "Added to every question; `mixture`: that of the training mixture."}
    )

    def lmms_options(self) -> dict[str, Any]:
        """What `VADEEvalCallback` takes beside the trainer; empty where no benchmark is asked for.

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


def read_plan_arguments(arguments: list[str]) -> PlanArguments:
    """The plan's own flags among the arguments: they decide how the rest is read."""
    parser = HfArgumentParser(PlanArguments, add_help=False, allow_abbrev=False)
    return parser.parse_args_into_dataclasses(arguments, return_remaining_strings=True, look_for_args_file=False)[0]


def print_plan(arguments: list[str]) -> None:
    """Print what a recipe means: counts, then the estimate of GPU memory.

    Args:
        arguments: those of a training run (`--config recipe.yaml --learning_rate 1e-6 ...`) and of `PlanArguments`.

    Raises:
        ConfigurationError: the recipe cannot run so, or cannot be read.
    """
    plan_args = read_plan_arguments(arguments)
    try:
        _show_plan(arguments, plan_args)
    except (ValueError, OSError) as error:  # ConfigurationError is one; TRL refuses by ValueError, too; no such file
        here = "" if plan_args.plan_accelerate or plan_args.plan_processes else NOT_LAUNCHED
        raise ConfigurationError(f"This recipe cannot run so. {error}{here}") from error


def refuse_plan_in_recipe(script_args: VADEScriptArguments, plan_args: PlanArguments) -> None:
    """Refuse a plan's options in a recipe: they are read before it, and would be passed over."""
    for option in fields(PlanArguments):
        if getattr(script_args, option.name) != getattr(plan_args, option.name):
            raise ConfigurationError(
                f"The recipe sets {option.name}={getattr(script_args, option.name)!r}. A plan's options decide how "
                f"the recipe is read, so they are flags of the command: give --{option.name} there."
            )


def load_splits(script_args: VADEScriptArguments) -> Any:
    """The data set by name: the testbed, a Hub repository or a local folder."""
    if script_args.dataset_name == TESTBED:
        from .testbed import load_testbed_dataset

        return load_testbed_dataset(seed=script_args.testbed_seed)
    from datasets import load_dataset

    return load_dataset(
        script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
    )


def _show_plan(arguments: list[str], plan_args: PlanArguments) -> None:
    from .plan import make_plan
    from .plan_report import plan_rows

    launch = _launch(plan_args)
    script_args, args, model_args = _read_recipe(arguments, launch.processes)
    refuse_plan_in_recipe(script_args, plan_args)
    plan = make_plan(args, _number_of_rows(script_args))
    print_table("The plan", plan_rows(plan, launch))
    _show_memory(script_args, args, model_args, launch)


def _launch(plan_args: PlanArguments) -> Launch:
    launch = Launch() if plan_args.plan_accelerate is None else read_launch(plan_args.plan_accelerate)
    if plan_args.plan_processes is not None:
        launch = Launch(plan_args.plan_processes, launch.sharding, launch.mixed_precision)
    elif plan_args.plan_accelerate is None:
        launch = Launch(int(os.environ.get("WORLD_SIZE", "1")))
    if launch.processes < 1:
        raise ConfigurationError(f"{launch.processes} processes train nothing; set --plan_processes to 1 or more.")
    return launch


def _read_recipe(arguments: list[str], processes: int) -> Any:
    """`VADEScriptArguments`, a `planned_config` and a `ModelConfig`."""
    from .plan import planned_config

    if arguments and arguments[-1] == "--config":  # TRL 1.16 would end in an IndexError
        raise ConfigurationError("--config names no file; give the recipe's path after it.")
    parser = TrlParser((VADEScriptArguments, planned_config(processes), ModelConfig))
    try:
        return parser.parse_args_and_config(arguments)
    except yaml.YAMLError as error:  # names the file and the line
        raise ConfigurationError(f"The recipe is no YAML: {' '.join(str(error).split())}.") from error


def _number_of_rows(script_args: VADEScriptArguments) -> int:
    """Rows of the training split; a data set is loaded only where that takes no network."""
    if script_args.plan_rows is not None:
        return script_args.plan_rows
    name = script_args.dataset_name
    if not name:
        raise ConfigurationError(
            "No data set is named, so the number of rows is not known: set --dataset_name to a folder, or give it as "
            "--plan_rows."
        )
    if name != TESTBED and not Path(name).exists():
        raise ConfigurationError(
            f"dataset_name={name!r} is no folder here, and a plan downloads nothing. Give the number of rows of the "
            "training split, such as --plan_rows 8524 (90 % of the paper's 9,471)."
        )
    if name != TESTBED and script_args.dataset_streaming:
        raise ConfigurationError(
            "dataset_streaming is set, and a stream does not say how many rows it has: give --plan_rows."
        )
    return _rows_of_split(script_args)


def _rows_of_split(script_args: VADEScriptArguments) -> int:
    from datasets.exceptions import DatasetsError

    from .data import why_not_loaded

    name, split = script_args.dataset_name, script_args.dataset_train_split
    try:
        splits = load_splits(script_args)
    except (DatasetsError, RuntimeError, yaml.YAMLError) as error:  # datasets 5.2: its scripts, its card
        raise ConfigurationError(
            f"dataset_name={name!r} cannot be loaded: {why_not_loaded(error)}. Mend it, or give --plan_rows."
        ) from error
    if split not in splits:
        raise ConfigurationError(
            f"dataset_train_split={split!r} is no split of {name!r}, which has {', '.join(map(repr, splits))}."
        )
    return len(splits[split])


def _show_memory(script_args: VADEScriptArguments, args: Any, model_args: ModelConfig, launch: Launch) -> None:
    """Print the estimate of GPU memory, or why there is none. `args` is a `planned_config`."""
    from .memory import GIB, Lengths, estimate_memory, gib, why_no_estimate
    from .model_shape import read_model_shape
    from .plan_report import memory_rows, verdict

    reason = "use_cpu is set" if args.planned_on_cpu else why_no_estimate(args, model_args)
    prompt = script_args.plan_prompt_tokens or args.vade_max_prompt_length
    if prompt is None and args.vllm_max_model_length is not None:
        prompt = args.vllm_max_model_length - args.max_completion_length
    if reason is None and prompt is None:
        reason = "the longest prompt is not known: set --plan_prompt_tokens or vade_max_prompt_length"
    if reason is None and model_args.model_name_or_path is None:
        reason = "no model is named: set --model_name_or_path"
    if reason is not None:
        print(f"No estimate of GPU memory: {reason}.")
        return
    shape = read_model_shape(model_args.model_name_or_path, revision=model_args.model_revision)
    lengths = Lengths(prompt, min(script_args.plan_image_tokens, prompt), args.max_completion_length)
    estimate = estimate_memory(
        args,
        shape,
        launch,
        lengths,
        gpu=int(script_args.plan_gpu_memory * GIB),
        dtype=(args.model_init_kwargs or {}).get("dtype", model_args.dtype),
        flash="flash" in str(model_args.attn_implementation),
    )
    print_table(f"Estimated memory of one GPU, which has {gib(estimate.gpu)}", memory_rows(estimate))
    print(
        f"{shape.parameters:,} parameters. Micro-batches of {args.per_device_train_batch_size} rows, padded to\n"
        f"prompts of {prompt:,} tokens and completions of {lengths.completion:,}, with {lengths.image:,} image\n"
        "tokens a row on average.\n"
        "* certain; the rest is an estimate. Left out: fragmentation, the CUDA context, communication buffers."
    )
    if estimate.kv_cache_tokens is not None:
        print(
            f"vLLM's share: at most {estimate.kv_cache_tokens:,} tokens of KV cache in each engine, or "
            f"{estimate.parallel_sequences:,} of the longest sequences at a time."
        )
    estimate.refuse_what_cannot_fit()
    print(verdict(estimate))
