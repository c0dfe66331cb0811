"""`trl-vade train`: train a vision-language model by GRPO with prompts chosen by VADE.

Without `--recipe`, `--config`, `--model_name_or_path` and `--dataset_name` it runs the recipe `quickstart`: a tiny,
real Qwen2.5-VL on a data set drawn on the spot. `{vade_sampler}` in the name of the output directory stands for the
sampler. A directory with checkpoints is refused, unless the run goes on from the newest.
"""

import os
import sys
import warnings
from itertools import pairwise

from .recipes import TESTBED

INTERRUPTED = 130  # the exit code of shells after Ctrl-C
UNAVOIDABLE = [
    # TRL 1.16, and recipes for every transformers from 5.10 on, use names that transformers 5.23 has given up.
    (r"`gradient_checkpointing` is deprecated", FutureWarning, r"transformers\.training_args"),
    (r"`is_gradient_checkpointing` is deprecated", FutureWarning, r"transformers\.modeling_utils"),
]
"""Message, category and module of warnings of libraries that no setting of a user can end."""


def run(arguments: list[str]) -> None:
    """Train, launch or print the plan. Ctrl-C ends it with exit code 130, and without a traceback.

    Raises:
        ConfigurationError: the arguments, the recipe or the settings cannot work.
    """
    quieten()
    from .parsing import read_command

    arguments = with_quickstart(arguments)
    command, rest = read_command(arguments)
    if command.plan:
        from .plan import print_plan

        print_plan(arguments)
        return
    try:
        if command.accelerate_config is not None:
            from .launching import launch

            launch(command, rest)
        else:
            from .training import train

            train(rest)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


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


def quieten() -> None:
    """Say that the libraries are loaded, and keep off the screen what no user can act on."""
    for message, category, module in UNAVOIDABLE:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    # A bar in a file is one line of a hundred states, and each process would have one.
    if not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of transformers, too
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    if "LOCAL_RANK" not in os.environ:  # else the launcher around this process has said so
        print("loading PyTorch, transformers and TRL ...", file=sys.stderr, flush=True)
