"""What the cards share: their file, the marks of our part, tables in Markdown, and texts of strangers."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

CARD_FILE = "README.md"
START = "<!-- trl_vade: what follows is written by trl_vade, anew at every save -->"
END = "<!-- trl_vade: end -->"
RESULTS = "<!-- trl_vade: results of an evaluation -->"
RESULTS_END = "<!-- trl_vade: end of the results -->"
MOST_SIGNS = 60  # of a name, a task or an id


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def one_line(value: Any, most: int = MOST_SIGNS) -> str:
    """Return `value` as a line of up to `most` characters, without those that steer a terminal or turn the text."""
    signs = ("" if unicodedata.category(sign) == "Cf" else sign for sign in str(value)[: 10 * most])
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in signs).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def code(value: Any, most: int = MOST_SIGNS) -> str:
    """Return `value` as code on one line, or nothing. The name of a reward may hold any characters."""
    text = "" if value is None else one_line(value, most).replace("`", "'")
    return f"`{text}`" if text else ""
