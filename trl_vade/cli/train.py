"""`trl-vade train`: train a vision-language model by GRPO with prompts chosen by VADE.

Without `--recipe`, `--config`, `--model_name_or_path` and `--dataset_name` it runs the recipe `quickstart`: a tiny,
real Qwen2.5-VL on a data set drawn on the spot. `{vade_sampler}` in the name of the output directory stands for the
sampler. A directory that holds another run is refused.

`python -m trl_vade.cli.start` is the same, for `accelerate launch -m` and `torchrun -m`.
"""

import importlib
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import suppress
from itertools import pairwise

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from transformers.utils.logging import disable_progress_bar
from trl import ModelConfig, TrlParser, get_peft_config, get_quantization_config

from trl_vade import VADEEvalCallback, VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.errors import CheckpointIncompleteError, ConfigurationError, HubError
from trl_vade.evaluation.callback import planned
from trl_vade.trainer.checkpoint.completeness import resolve_checkpoint
from trl_vade.trainer.checkpoint.output_folder import refuse_another_run
from trl_vade.trainer.typed_command import typed_words

from .plan.command import print_plan
from .recipes import accelerate_file
from .training_arguments import (
    TESTBED,
    VADEScriptArguments,
    load_splits,
    pick_split,
    read_command,
    refuse_command_in_recipe,
    refuse_contradictions,
)


def launch(configuration: str, arguments: list[str], parser: ArgumentParser) -> None:
    """Launch `trl_vade.cli.start` as an accelerate configuration says; a process that fails ends this one.

    The arguments are those of the run, which `parser` knows, and options of the launcher that overrule the
    configuration (`--num_processes 8`). An option that both know is the run's.

    Raises:
        ConfigurationError: neither knows an option, or this process was started by a launcher itself.
    """
    if "LOCAL_RANK" in os.environ:
        raise ConfigurationError(
            f"--accelerate_config {configuration} starts a launcher, and a launcher has started this process "
            "(LOCAL_RANK is set). Leave --accelerate_config out here."
        )
    ours, theirs = split(arguments, parser)
    options = ["--config_file", str(accelerate_file(configuration)), *theirs, "--module", "trl_vade.cli.start"]
    # Ctrl-C reaches the process, too. It ends after its last checkpoint, and this one ends with it.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        launch_command(launch_command_parser().parse_args([*options, *ours]))
    except SignalException:  # of torch's launcher, when its processes have ended
        raise KeyboardInterrupt from None
    except (subprocess.CalledProcessError, ChildFailedError) as error:
        sys.exit(max(getattr(error, "returncode", 1), 1))  # the process has said why
    finally:
        signal.signal(signal.SIGINT, before)


def split(arguments: list[str], parser: ArgumentParser) -> tuple[list[str], list[str]]:
    """Return the arguments of the run and those of the launcher, each in their order."""
    places = [place for place, word in enumerate(arguments) if word == "--config"][:1]
    config = [word for place in places for word in arguments[place : place + 2]]  # which TRL reads by itself
    words = [word for place, word in enumerate(arguments) if place - 1 not in places and place not in places]
    _, theirs = parser.parse_known_args(words)
    known = vars(launch_command_parser().parse_args(["a_script"]))
    flags = [word.split("=")[0] for word in theirs if word.startswith("-")]
    unknown = [flag for flag in flags if flag.lstrip("-").replace("-", "_") not in known]
    if unknown or (theirs and not flags):
        raise ConfigurationError(
            f"{', '.join(unknown) or theirs[0]}: neither the training nor accelerate's launcher has this option. See "
            "`trl-vade train --help_all` and `accelerate launch --help`."
        )
    left, ours = list(theirs), []
    for word in words:  # `theirs` are some of `words`, in their order
        if left and word == left[0]:
            left.pop(0)
        else:
            ours.append(word)
    return [*config, *ours], theirs


ARGUMENTS = (VADEScriptArguments, VADEGRPOConfig, ModelConfig)


def main(script_args: VADEScriptArguments, training_args: VADEGRPOConfig, model_args: ModelConfig) -> None:
    """Train, save and push as the arguments say.

    Raises:
        ConfigurationError: Settings cannot work, or the output directory holds another run.
        HubError: Something that should be on the Hub is not there. All of it is saved here.
    """
    command = typed_words()
    training_args.output_dir = training_args.output_dir.replace("{vade_sampler}", training_args.vade_sampler)
    asked = training_args.resume_from_checkpoint
    resume = resolve_checkpoint(asked == "true" if asked in ("true", "false") else asked, training_args.output_dir)
    refuse_another_run(training_args, resume)
    refuse_contradictions(training_args)
    rewards = [load_reward(name) for name in script_args.reward_funcs]
    lmms_options = script_args.lmms_options()
    if lmms_options:
        try:
            planned(training_args, **lmms_options)  # refused, if it has to be, before a model is loaded
        except ConfigurationError as error:
            raise ConfigurationError(
                f"Benchmarks during the training (--lmms_tasks, --lmms_data, --lmms_steps, --lmms_limit): {error}"
            ) from error

    # 1. Data and model. The testbed is built once and cached, so the other processes wait for the first.
    with training_args.main_process_first(desc="building the testbed"):
        dataset = load_splits(script_args)
        if model_args.model_name_or_path == TESTBED:
            from trl_vade.testbed import load_testbed_model

            model_args.model_name_or_path = str(load_testbed_model(seed=script_args.testbed_seed))
    train_dataset, eval_dataset = pick_split(dataset, "dataset_train_split", script_args), None
    if training_args.eval_strategy != "no":
        eval_dataset = pick_split(dataset, "dataset_test_split", script_args)

    # 2. The trainer. A model given by name is loaded by TRL, with these arguments.
    training_args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(training_args.model_init_kwargs or {}),
    }
    trainer = VADEGRPOTrainer(
        model=model_args.model_name_or_path,
        reward_funcs=rewards,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        quantization_config=get_quantization_config(model_args),
        peft_config=get_peft_config(model_args),
    )

    trainer.command, trainer.dataset_name = command, script_args.dataset_name
    if lmms_options:
        trainer.add_callback(VADEEvalCallback(trainer, **lmms_options))

    # 3. Train. `--resume_from_checkpoint true` goes on from the newest checkpoint, with its posterior.
    with suppress(HubError):  # all is saved here; what is not on the Hub is tried again below
        trainer.train(resume_from_checkpoint=resume)

    # 4. Keep what was learned: weights, posterior, state. No bar goes below the last lines of the run.
    disable_progress_bar()
    with suppress(HubError):
        trainer.save_model()
    trainer.save_state()
    if training_args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)
    trainer.publication.finish()  # an error if anything is not on the Hub that is to be there
    trainer.end()


def load_reward(name: str):
    """Return a reward function: of `trl.rewards` by its name, or any other by its import path."""
    module, _, function = name.rpartition(".")
    sys.path.insert(0, "")  # rewards in the user's working directory, as TRL's own scripts allow
    try:
        return getattr(importlib.import_module(module or "trl.rewards"), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"--reward_funcs {name}: {error}. Give a name of trl.rewards (accuracy_reward, think_format_reward, ...) "
            "or the import path of a function (my_package.rewards.my_reward)."
        ) from error
    finally:
        sys.path.pop(0)


def with_quickstart(arguments: list[str]) -> list[str]:
    """Return the arguments, with the quickstart where they name neither a recipe nor a model nor a data set.

    Who switches the recipe's evaluation off switches off the one at the start, too.
    """
    words = [word for argument in arguments for word in argument.split("=", 1)]
    words = ["--" + word[2:].replace("-", "_") if word.startswith("--") else word for word in words]
    asked = ("--recipe", "quickstart") in pairwise(words)
    own = {"--recipe", "--config", "--model_name_or_path", "--dataset_name", "--help", "-h"}
    if not asked and own & {*words}:
        return arguments
    off = ("--eval_strategy", "no") in pairwise(words) and "--eval_on_start" not in words
    return [*([] if asked else ["--recipe", "quickstart"]), *arguments, *(["--eval_on_start", "false"] if off else [])]


def parse(arguments: list[str]) -> tuple:
    """Read arguments and recipe; an unknown option, and what TRL refuses at this stage, is a `ConfigurationError`."""
    try:
        return TrlParser(ARGUMENTS).parse_args_and_config(arguments)
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def run(arguments: list[str]) -> None:
    """Train, launch or print the plan. Settings that cannot work end with their message and exit code 1."""
    try:
        arguments = with_quickstart(arguments)
        command, rest = read_command(arguments)
        if command.plan:
            print_plan(arguments)
        elif command.accelerate_config is not None:
            launch(command.accelerate_config, rest, TrlParser(ARGUMENTS))
        else:
            parsed = parse(rest)
            refuse_command_in_recipe(parsed[0])
            main(*parsed)
    except (CheckpointIncompleteError, ConfigurationError) as error:
        sys.exit(str(error))
