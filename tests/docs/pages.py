"""The documents: README.md, CONTRIBUTING.md and docs/, and what stands in them."""

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def fences(language: str, documents: Sequence[Path] = DOCUMENTS) -> dict[str, list[str]]:
    """The code blocks in a language, by document."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
    return {str(path.relative_to(ROOT)): fence.findall(path.read_text(encoding="utf-8")) for path in documents}


def table_rows(path: Path, heading: str = "") -> list[list[str]]:
    """The rows of the tables under a heading of the second level, or before the first one, cell by cell."""
    sections = re.split(r"^## (.+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = dict(zip(["", *sections[1::2]], sections[::2], strict=True))[heading]
    return [line.split(" | ") for line in re.findall(r"^\| (.+) \|$", text, flags=re.MULTILINE)]
