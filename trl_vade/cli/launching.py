"""`trl-vade train --accelerate_config`: the processes of a run, started by accelerate's launcher."""

import signal
import subprocess

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from .commands import FAILED
from .parsing import CommandArguments, Parser
from .recipes import accelerate_file


def launch(command: CommandArguments, arguments: list[str]) -> None:
    """Launch `trl-vade train` as an accelerate configuration says; a process that fails ends this one.

    The arguments are those of the run, which has those that both know, and options of the launcher.
    """
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
    except subprocess.CalledProcessError as error:  # the process has said why
        raise SystemExit(max(error.returncode, FAILED)) from None  # a signal's code is below 0
    except ChildFailedError as error:
        raise SystemExit(max(error.get_first_failure()[1].exitcode, FAILED)) from None
    finally:
        signal.signal(signal.SIGINT, before)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments of the run and those of the launcher, each in their order."""
    parser = Parser()
    _, theirs = parser.parse_known_args(arguments)
    options = [option for action in launch_command_parser()._actions for option in action.option_strings]
    parser.refuse_unknown(theirs, [option.lstrip("-").replace("-", "_") for option in options])
    left, ours = list(theirs), []
    for word in arguments:  # `theirs` are some of them, in their order
        if left and word == left[0]:
            left.pop(0)
        else:
            ours.append(word)
    return ours, theirs
