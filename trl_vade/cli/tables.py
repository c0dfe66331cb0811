"""Tables on the terminal. Nothing in them is cut off: a number without its last digits is another number."""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.table import Table

LEAST_TEXT = 16
"""Signs that a column of texts has in a line; where the terminal has no room for them, the table is wider than it."""


def print_table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values, with lines around them."""
    table = Table(title=title, title_justify="left", show_header=False)
    _print(table, ["", ""], rows, text=2)


def print_columns(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> None:
    """Print rows under a head: the first `text` columns to the left, the others, which are numbers, to the right."""
    print(title)  # rich would wrap it at the table's width
    _print(Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True), head, rows, text)


def _print(table: Table, head: Sequence[str], rows: Sequence[Sequence[str]], text: int) -> None:
    """Fill and print `table`: texts are folded and never cut short, since a reader copies them; numbers stay whole."""
    # What is printed is data: "[b]" in the name of a row is no markup, and ":x:" no emoji.
    console = Console(markup=False, emoji=False)
    for number, name in enumerate(head):
        table.add_column(name, overflow="fold", justify="left" if number < text else "right", no_wrap=number >= text)
    cells = [[_visible(cell, console.encoding) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*row)
    # Below this width rich 15 leaves out the columns of texts, and then cuts numbers off.
    texts = [*zip(head, *cells, strict=True)][:text]
    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in texts]
    whole = console.measure(table, options=console.options.update(width=10**6)).maximum
    least = whole - sum(max(width - LEAST_TEXT, 0) for width in widths)
    console.size = ConsoleDimensions(max(console.width, least), console.height)
    console.print(table)


def _visible(text: str, encoding: str) -> str:
    """Escape signs that a terminal would obey or that its encoding lacks.

    Names of rows may come from a stranger's repository.
    """
    obeyed = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return obeyed.encode(encoding, "backslashreplace").decode(encoding)
