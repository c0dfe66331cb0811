"""The templates of the cards, and tables in Markdown."""

from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]


def template_path(name: str) -> Path:
    """Return the path of the template `name`, such as "posterior.md".

    A wheel has the folder `model_cards` inside the package. An editable installation uses the folder of the
    repository, beside the package.

    Raises:
        FileNotFoundError: neither folder has it; the installation is incomplete.
    """
    places = (_PACKAGE / "model_cards", _PACKAGE.parent / "model_cards")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"No card template {name} in {places[0]} or {places[1]}. Install trl_vade again.")


def markdown_table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
