"""Count the sentences of README.md and docs/: `python -m tests.docs.prose [FILE ...]`.

Headings, code blocks, images and the addresses of links are left out, and inline code counts as one word. The mean is
that of the running text; a table's cells count for the longest sentence only. A list item ends its sentence.
"""

import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
MEAN_LIMIT, LONGEST_LIMIT = 17, 40  # words: the mean is below, no sentence is above

_MARKDOWN = MarkdownIt("commonmark").enable("table")
# The first line of an admonition, a tab or a mkdocstrings directive. What belongs to it is indented.
_BLOCK = re.compile(r"^( *)(!!!|\?\?\?\+?|===|:::) ")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|eq|cf|vs|al|Fig|Sec)\.(?=\s|,)")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")


@dataclass(frozen=True)
class Prose:
    """The sentences of one document."""

    lines: int
    sentences: list[str]
    cells: list[str]

    @property
    def mean(self) -> float:
        """Words a sentence in the running text, 0 without any."""
        return sum(map(words, self.sentences)) / max(len(self.sentences), 1)

    @property
    def longest(self) -> str:
        """The sentence with most words, those of table cells included."""
        return max([*self.sentences, *self.cells, ""], key=words)


def words(sentence: str) -> int:
    """Count the words of `sentence`: what stands between spaces and has a letter or a digit."""
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


def split(text: str) -> list[str]:
    """Split `text` into sentences."""
    parts = _END.split(_ABBREVIATION.sub("\\1\0", text))
    return [part.replace("\0", ".") for part in parts if words(part)]


def outdented(text: str) -> str:
    """Outdent what admonitions and tabs hold, which CommonMark would read as code; drop the options of directives."""
    lines, shift, kept = [], 0, True
    for line in text.splitlines():
        if line.strip() and len(line) - len(line.lstrip()) < shift:
            shift, kept = 0, True
        if block := _BLOCK.match(line):
            shift, kept = len(block[1]) + 4, block[2] != ":::"
        lines.append(line[shift:] if kept and not block else "")
    return "\n".join(lines)


def read(text: str) -> Prose:
    """Read the Markdown `text` into its sentences."""
    text_without_front_matter = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    tokens = _MARKDOWN.parse(outdented(text_without_front_matter))
    found: dict[str, list[str]] = {"p": [], "td": [], "th": []}
    for opening, inline in pairwise(tokens):
        if inline.type == "inline" and opening.tag in found:
            found[opening.tag] += split(_plain(inline.children or []))
    return Prose(len(text.splitlines()), found["p"], found["td"] + found["th"])


def _plain(children: list) -> str:
    parts = {"softbreak": " ", "hardbreak": " ", "image": "", "html_inline": ""}
    return "".join(
        f"`{'_'.join(child.content.split())}`" if child.type == "code_inline" else parts.get(child.type, child.content)
        for child in children
    )


def documents() -> list[Path]:
    """The Markdown files that the rules hold for."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(names: list[str]) -> None:
    """Print a line for each document, and which sentences are too long."""
    too_long = []
    print(f"{'file':32} {'lines':>5} {'sentences':>9} {'mean words':>10} {'longest':>7}")
    for path in [Path(name).resolve() for name in names] or documents():
        prose = read(path.read_text(encoding="utf-8"))
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        print(f"{name:32} {prose.lines:5} {len(prose.sentences):9} {prose.mean:10.1f} {words(prose.longest):7}")
        sentences = sorted(prose.sentences + prose.cells, key=words, reverse=True)
        too_long += [f"{name}: {words(s)} words: {s}" for s in sentences if words(s) > LONGEST_LIMIT]
    print(*too_long, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
