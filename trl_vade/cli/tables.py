"""Tables on the terminal, in which nothing is cut off: a number without its last digits is another number."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table


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
