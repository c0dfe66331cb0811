"""How every command of `trl-vade` refuses, by one message and an exit code, and the help of those that train."""

import io
import os
import sys
from argparse import SUPPRESS
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trl_vade.errors import SnapshotCorruptError, VADEError, naming_library
from trl_vade.trainer.docstring_help import first_sentence

WRONG_INPUT, FAILED = 2, 1
"""Exit codes: what was given cannot be used (an argument, a setting, a name), or something failed (network, disk)."""
SHOWN = {
    "The command": "recipe config accelerate_config num_processes plan plan_rows",
    "What is trained on what": "model_name_or_path dataset_name reward_funcs output_dir use_peft",
    "VADE": "vade_preset vade_sampler vade_success_reward vade_posterior_init vade_dynamic_sampling",
    "The batch": "num_generations per_device_train_batch_size gradient_accumulation_steps max_steps learning_rate",
    "The run": "use_vllm eval_steps save_steps resume_from_checkpoint report_to push_to_hub",
}
"""The options in the help of a training, without --help-all."""
WIDTH = 78  # of a line: two columns of a terminal of 80 stay free


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with one message where the package or the disk refuses. Of launched processes one prints it.

    Data that is damaged has failed; what is not there was named wrongly.
    """
    try:
        yield
    except BrokenPipeError:  # `trl-vade ... | head`: typer ends that quietly
        raise
    except (VADEError, ImportError, OSError) as error:
        named = naming_library(error) if isinstance(error, ImportError) else error
        if isinstance(named, ImportError) and not isinstance(named, VADEError):
            raise
        # An OSError of transformers has several lines.
        message = str(named) if isinstance(named, VADEError) else " ".join(str(named).split())
        given = isinstance(named, ValueError | FileNotFoundError) and not isinstance(named, SnapshotCorruptError)
        if os.environ.get("LOCAL_RANK", "0") == "0":
            typer.echo(f"Error: {message}", err=True)
        raise typer.Exit(WRONG_INPUT if given else FAILED) from error


class Commands(TyperGroup):
    """A group whose commands refuse by `plain_errors`; what it cannot parse typer refuses, with the same code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # a name that its encoding does not have must not end a command
            sys.stdout.reconfigure(errors="backslashreplace")
        with plain_errors():
            return super().invoke(ctx)


class TrainingCommand(TyperCommand):
    """A command that takes the arguments of a training, as they are."""

    allow_extra_args = ignore_unknown_options = True

    def invoke(self, ctx: Any) -> Any:
        """Run the command, or print the help with every option."""
        return typer.echo(ctx.get_help()) if ctx.params["help_all"] else super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, or with --help-all what the parser of the run says, then the command's own options."""
        from .parsing import Parser  # loads torch, as the run itself does

        parser = Parser()
        if ctx.params.get("help_all"):
            parser.usage = SUPPRESS
            formatter.write(parser.format_help())
        else:
            texts = {action.dest: first_sentence(action.help or "") for action in parser._actions}
            for title, options in SHOWN.items():
                names = options.split()
                room = WIDTH - max(map(len, names)) - len("  --  ")
                rows = [(f"--{name}", shorten(texts[name], room, placeholder=" ...")) for name in names]
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=32)
        super().format_options(ctx, formatter)
