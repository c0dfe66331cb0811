"""What the cards share: their file, the marks of our part, and tables in Markdown."""

from typing import Any

CARD_FILE = "README.md"
START = "<!-- trl_vade: what follows is written by trl_vade, anew at every save -->"
END = "<!-- trl_vade: end -->"
RESULTS = "<!-- trl_vade: results of an evaluation -->"
RESULTS_END = "<!-- trl_vade: end of the results -->"


def markdown_table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
