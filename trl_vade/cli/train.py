"""`trl-vade train`: train a vision-language model by GRPO with prompts chosen by VADE.

Without `--recipe`, `--config`, `--model_name_or_path` and `--dataset_name` it runs the recipe `quickstart`: a tiny,
real Qwen2.5-VL on a data set drawn on the spot. `{vade_sampler}` in the name of the output directory stands for the
sampler. A directory with checkpoints is refused, unless the run goes on from the newest.

Arguments that cannot work are refused here, before torch is imported.
"""

from dataclasses import replace
from itertools import pairwise

from .data_sets import TESTBED
from .early_checks import refuse_early
from .first_second import begin
from .launching import launch
from .training_arguments import read_command

INTERRUPTED = 130  # the exit code of shells after Ctrl-C


def run(arguments: list[str]) -> None:
    """Train, launch or print the plan. Ctrl-C ends it with exit code 130, and without a traceback.

    Raises:
        ConfigurationError: the arguments, the recipe or the settings cannot work.
    """
    arguments = with_quickstart(arguments)
    command, rest = read_command(arguments)
    if command.plan:
        plan(arguments)
        return
    refuse_early(command, rest)
    try:
        if command.accelerate_config is not None:
            launch(command.accelerate_config, rest)
        else:
            begin()
            from .training import train

            train(rest)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def plan(arguments: list[str], *, as_json: bool = False) -> None:
    """Print what a recipe means.

    Raises:
        ConfigurationError: as `run`.
    """
    command, rest = read_command(arguments)
    refuse_early(replace(command, plan=True), rest)
    from .plan import print_plan

    print_plan(arguments, as_json=as_json)


def with_quickstart(arguments: list[str]) -> list[str]:
    """Return the arguments, with the quickstart where they name neither a recipe nor a model nor a data set.

    The testbed is the quickstart's model and data set. Who switches the recipe's evaluation off switches off the one
    at the start, too.
    """
    words = [word for argument in arguments for word in argument.split("=", 1)]
    words = ["--" + word[2:].replace("-", "_") if word.startswith("--") else word for word in words]
    asked = ("--recipe", "quickstart") in pairwise(words)
    own = {"--recipe", "--config", "--model_name_or_path", "--dataset_name"}
    if not asked and any(word in own and value != TESTBED for word, value in pairwise([*words, ""])):
        return arguments
    off = ("--eval_strategy", "no") in pairwise(words) and "--eval_on_start" not in words
    return [*([] if asked else ["--recipe", "quickstart"]), *arguments, *(["--eval_on_start", "false"] if off else [])]
