"""Start the processes of a run by accelerate's launcher."""

import os
import subprocess
import sys
from argparse import ArgumentParser

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from trl_vade.errors import ConfigurationError

from .recipes import accelerate_file


def launch(configuration: str, arguments: list[str], parser: ArgumentParser) -> None:
    """Launch `trl_vade.cli.train` as an accelerate configuration says; a process that fails ends this one.

    Args:
        configuration: a file, or a name of the package's.
        arguments: of the run, and options of the launcher that overrule the configuration (`--num_processes 8`).
        parser: knows the options of the run. An option that both know is the run's.

    Raises:
        ConfigurationError: neither knows an option, or this process was started by a launcher itself.
    """
    if "LOCAL_RANK" in os.environ:
        raise ConfigurationError(
            f"--accelerate_config {configuration} starts a launcher, and a launcher has started this process "
            "(LOCAL_RANK is set). Leave --accelerate_config out here."
        )
    ours, theirs = split(arguments, parser)
    options = ["--config_file", str(accelerate_file(configuration)), *theirs, "--module", "trl_vade.cli.train"]
    try:
        launch_command(launch_command_parser().parse_args([*options, *ours]))
    except (subprocess.CalledProcessError, ChildFailedError):
        sys.exit(1)  # the process has said why


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
