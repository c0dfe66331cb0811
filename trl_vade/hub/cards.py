"""Tables in Markdown, which the cards share."""

from typing import Any


def markdown_table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
