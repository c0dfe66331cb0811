"""Links of README.md and of the pages lead somewhere; the built site is checked in test_site.py."""

import re
import tomllib
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.docs.prose import ROOT, documents

DOCS = ROOT / "docs"


LINKS = ("link_open", "image")


def links(path):
    """The targets of all links and images of a Markdown file."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    children = [child for token in tokens for child in token.children or []]
    return [str(child.attrGet("href") or child.attrGet("src")) for child in children if child.type in LINKS]


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site make them, and its explicit ones."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+?)(?:\{ *#([\w-]+) *\})?$", text, flags=re.MULTILINE)
    return {own or re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title, own in headings}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(path):
    """A page links to pages alone: the site has no other files of the repository."""
    inside = ROOT if path.parent == ROOT else DOCS
    for link in links(path):
        url = urlsplit(link)
        if url.scheme or url.netloc:
            assert url.scheme == "https", link
            assert "." in url.netloc, link
            continue
        target = (path.parent / url.path).resolve() if url.path else path
        assert target.exists(), link
        assert target.is_relative_to(inside), f"{link} leads out of {inside.name}/: name the file without a link"
        assert not url.fragment or url.fragment in anchors(target), link


def pages(entry):
    """The files that an entry of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]


def test_the_navigation_names_every_page_once():
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    there = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages(nav)) == sorted(there)
