"""`trl-vade train` before torch is loaded: the quickstart, a launcher, a plan or a run."""

import os
import sys
import warnings
from itertools import pairwise

from .recipes import TESTBED


def run(arguments: list[str], *, plan: bool = False, as_json: bool = False) -> None:
    """Train, launch, or print the `plan`, also `as_json`. Ctrl-C ends it with exit code 130, and no traceback."""
    quieten()
    from .parsing import Parser, read_command

    command, rest = read_command(with_quickstart(arguments))
    try:
        if plan:
            from .plan import print_plan

            print_plan(command, rest, as_json=as_json)
        elif command.accelerate_config is not None:
            from .launching import launch

            launch(command, rest)
        else:
            settings = Parser().read(rest)  # a slip is refused before the trainer is loaded
            from .train_with_torch import train

            train(*settings)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


def with_quickstart(arguments: list[str]) -> list[str]:
    """Return the arguments, with the quickstart where they name no recipe, and no model or data set but its own."""
    words = [word for argument in arguments for word in argument.split("=", 1)]
    own = {"__recipe", "__config", "__model_name_or_path", "__dataset_name"}
    pairs = pairwise([*words, ""])
    if any(word.replace("-", "_") in own and value != TESTBED for word, value in pairs):
        return arguments
    return ["--recipe", "quickstart", *arguments]


def quieten() -> None:
    """Say that the libraries are loaded, and keep off the screen what no user can act on."""
    # TRL 1.16, and recipes for every transformers from 5.10 on, use names that transformers 5.23 has given up.
    warnings.filterwarnings("ignore", r"`(is_)?gradient_checkpointing` is deprecated", FutureWarning)
    # A bar in a file is one line of a hundred states, and each process would have one.
    if not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # of transformers, too
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    if "LOCAL_RANK" not in os.environ:  # else the launcher around this process has said so
        print("loading PyTorch, transformers and TRL ...", file=sys.stderr, flush=True)
