"""Tables on the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values, with lines around them."""
    _print(Table(title=title, title_justify="left", show_header=False), rows)


def print_columns(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> None:
    """Print rows under a head: the first `text` columns to the left, the others, which are numbers, to the right."""
    print(title)  # rich would wrap it at the table's width
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(head):
        # Texts are folded and never cut short: a reader copies them.
        table.add_column(name, overflow="fold", justify="left" if number < text else "right", no_wrap=number >= text)
    _print(table, rows)


def _print(table: Table, rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        table.add_row(*map(_visible, row))
    # What is printed is data: "[b]" in the name of a row is no markup, and ":x:" no emoji.
    Console(markup=False, emoji=False).print(table)


def _visible(text: str) -> str:
    """The text without signs that a terminal would obey: names of rows may come from a stranger's repository."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
