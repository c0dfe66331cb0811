"""`trl-vade train --accelerate_config`: the processes of a run, started by accelerate's launcher."""

import os
import signal
import subprocess

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from trl_vade.errors import ConfigurationError

from .commands import FAILED
from .parsing import CommandArguments, Parser
from .recipes import accelerate_file


def launch(command: CommandArguments, arguments: list[str]) -> None:
    """Launch `trl-vade train` as an accelerate configuration says; a process that fails ends this one.

    The arguments are those of the run, and options of the launcher that overrule the configuration. An option that
    both know is the run's.

    Raises:
        ConfigurationError: neither knows an option, or this process was started by a launcher itself.
    """
    if "LOCAL_RANK" in os.environ:
        raise ConfigurationError(
            f"--accelerate_config {command.accelerate_config} starts a launcher, and a launcher has started this "
            "process (LOCAL_RANK is set). Leave --accelerate_config out here."
        )
    ours, theirs = split(arguments)
    if command.num_processes is not None:
        theirs += ["--num_processes", str(command.num_processes)]
    options = ["--config_file", str(accelerate_file(str(command.accelerate_config))), *theirs]
    # Ctrl-C reaches the process, too. It ends after its last checkpoint, and this one ends with it.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        launch_command(launch_command_parser().parse_args([*options, "--module", "trl_vade", "train", *ours]))
    except SignalException:  # of torch's launcher, when its processes have ended
        raise KeyboardInterrupt from None
    except (subprocess.CalledProcessError, ChildFailedError) as error:
        raise SystemExit(_code_of(error)) from None  # the process has said why
    finally:
        signal.signal(signal.SIGINT, before)


def _code_of(error: Exception) -> int:
    """Return the exit code of the process that failed first; that of a signal is 1."""
    failures = getattr(error, "failures", {})
    codes = [failure.exitcode for failure in failures.values()] or [getattr(error, "returncode", FAILED)]
    return codes[0] if codes[0] > 0 else FAILED


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of the run and those of the launcher, each in their order."""
    places = [place for place, word in enumerate(arguments) if word == "--config"][:1]
    config = [word for place in places for word in arguments[place : place + 2]]  # which TRL reads by itself
    words = [word for place, word in enumerate(arguments) if place - 1 not in places and place not in places]
    parser = Parser()
    _, theirs = parser.parse_known_args(words)
    options = [option for action in launch_command_parser()._actions for option in action.option_strings]
    parser.refuse_unknown(theirs, [option.lstrip("-").replace("-", "_") for option in options])
    left, ours = list(theirs), []
    for word in words:  # `theirs` are some of `words`, in their order
        if left and word == left[0]:
            left.pop(0)
        else:
            ours.append(word)
    return [*config, *ours], theirs
