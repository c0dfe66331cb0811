"""The console takes the place of transformers' bars, and of the screen while a run goes on."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console as Screen
from transformers import PrinterCallback, ProgressCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.utils import logging as bars

from .callback import Console


def install_console(trainer: Any) -> Console | None:
    """Replace the bars and dictionaries of transformers by the console, as `vade_console` says; return it.

    A panel needs a terminal that can move its cursor. `disable_tqdm` asks for no bars, so it gives lines, too.
    """
    style = trainer.args.vade_console
    if style == "stock":
        return None
    for stock in {ProgressCallback, PrinterCallback, DEFAULT_PROGRESS_CALLBACK}:  # the last is another in a notebook
        trainer.remove_callback(stock)
    if not trainer.is_world_process_zero():
        return None
    screen = Screen(markup=False, emoji=False, force_jupyter=False)
    on_terminal = screen.is_interactive and screen.file.isatty()  # FORCE_COLOR makes a file look like a terminal
    panel = style == "panel" or (style == "auto" and on_terminal and not trainer.args.disable_tqdm)
    console = Console(trainer, screen, panel=panel)
    trainer.add_callback(console)
    trainer.publication.announce = console.say
    return console


@contextmanager
def showing(console: Console | None) -> Iterator[None]:
    """Show the console within the block. What other code logs scrolls above the panel, and its bars are off."""
    if console is None:
        yield
        return
    interrupted, with_bars = False, bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with _streams_of_now():
            yield
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if with_bars:
            bars.enable_progress_bar()
        console.finish(interrupted=interrupted)


@contextmanager
def _streams_of_now() -> Iterator[None]:
    """Let the handlers of all loggers write to the `sys.stderr` of the moment: rich replaces it during a panel."""
    stderr, loggers = sys.stderr, [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    handlers = {each for logger in loggers for each in logger.handlers if isinstance(each, logging.StreamHandler)}
    moved = [each for each in handlers if vars(each).get("stream") is stderr]
    for handler in moved:
        handler.setStream(_Present())
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(stderr)


class _Present:
    """The present `sys.stderr`."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
