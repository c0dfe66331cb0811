"""How every command of `trl-vade` refuses: by one message without a traceback, and an exit code that tells why."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from trl_vade.errors import SnapshotCorruptError, VADEError, naming_library

WRONG_INPUT, FAILED = 2, 1
"""Exit codes: what was given cannot be used (an argument, a setting, a name), or something failed (network, disk)."""

_WRONG_USE: Any = typer.BadParameter.__base__  # click's UsageError, which typer 0.29 has a copy of
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda word: word.replace("-", "_"),  # --output-path is --output_path
}


def exit_code(error: Exception) -> int:
    """Return `WRONG_INPUT` or `FAILED`. Data that is damaged has failed; what is not there was named wrongly."""
    given = isinstance(error, ValueError | FileNotFoundError) and not isinstance(error, SnapshotCorruptError)
    return WRONG_INPUT if given else FAILED


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with one message where the arguments, the package or the disk refuse. Of launched processes one prints."""
    try:
        yield
    except BrokenPipeError:  # `trl-vade ... | head`: typer ends that quietly
        raise
    except VADEError as error:
        message, code = str(error), exit_code(error)
    except ImportError as error:
        if (named := naming_library(error)) is error:
            raise
        message, code = str(named), FAILED
    except OSError as error:  # those of transformers have several lines
        message, code = " ".join(str(error).split()), exit_code(error)
    except _WRONG_USE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        place = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
        message, code = f"{error.format_message().rstrip('.')}.{place}", WRONG_INPUT
    else:
        return
    if os.environ.get("LOCAL_RANK", "0") == "0":
        typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code)


class PlainCommand(TyperCommand):
    """A command whose usage names arguments as they are, without the braces of typer 0.29."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class Commands(TyperGroup):
    """A group whose commands refuse by `plain_errors`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options in front of the command."""
        with plain_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # a name that its encoding does not have must not end a command
            sys.stdout.reconfigure(errors="backslashreplace")
        with plain_errors():
            return super().invoke(ctx)
