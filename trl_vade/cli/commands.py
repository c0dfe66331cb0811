"""What all commands share: refusals by one message and an exit code, every option of a training, and tables."""

import io
import os
import sys
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from trl_vade.errors import SnapshotCorruptError, VADEError, naming_library

WRONG_INPUT, FAILED = 2, 1
"""Exit codes: what was given cannot be used (an argument, a setting, a name), or something failed (network, disk)."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with one message where the package or the disk refuses. Of launched processes one prints it."""
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
        """Run the command, or print what the parser of the run says of every option."""
        if not ctx.params["help_all"]:
            return super().invoke(ctx)
        from .parsing import Parser  # loads torch, as the run itself does

        parser = Parser()
        parser.usage = SUPPRESS
        return typer.echo(parser.format_help())


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values, with lines around them."""
    _print(Table(title=title, title_justify="left", show_header=False), ["", ""], rows, texts=2)


def print_columns(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> None:
    """Print rows under a head: the first `text` columns to the left, the others, which are numbers, to the right."""
    print(title)  # rich would wrap it at the table's width
    _print(Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True), head, rows, text)


def _print(table: Table, head: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> None:
    for number, name in enumerate(head):
        table.add_column(name, overflow="fold", justify="left" if number < texts else "right")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table)  # "[b]" in the name of a row is no markup, and ":x:" no emoji
