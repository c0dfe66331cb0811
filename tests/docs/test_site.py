"""The built site: no warning, no dead link, nothing from another host. Needs the extra `docs`."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.prose import ROOT

pytestmark = pytest.mark.docs
SAID = ("Build started", "No issues found", "Build finished")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a fresh build, with HTTP pointed at nothing, and all that the build said."""
    work = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copy(ROOT / "zensical.toml", work)
    (work / "trl_vade").symlink_to(ROOT / "trl_vade")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    done = subprocess.run(command, cwd=work, env=os.environ | nowhere, capture_output=True, text=True, timeout=120)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, said
    return work / "site", said


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.ids = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(self.LOADS.get(tag)) and given.get("rel") != "canonical":
            self.loads.append(given[self.LOADS[tag]])


@pytest.fixture(scope="module")
def read(site):
    """All pages but the one for missing pages, whose links start at the root of a server."""
    return {path: Page(path) for path in site[0].rglob("*.html") if path.name != "404.html"}


def test_the_build_says_nothing_but_that_it_is_done(site):
    assert [line for line in site[1].splitlines() if line.strip() and not line.startswith(SAID)] == []


def test_every_page_of_the_documentation_is_there(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site[0]) for path in site[0].rglob("*.html")}


def test_every_link_leads_to_a_file_and_an_anchor(read):
    dead = []
    for path, page in read.items():
        for link in page.links + page.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            found = target.exists() and (not url.fragment or target not in read or url.fragment in read[target].ids)
            dead += [] if found else [f"{path.name}: {link}"]
    assert dead == []


def test_no_page_loads_anything_from_another_host(site, read):
    foreign = [f"{path.name}: {url}" for path, page in read.items() for url in page.loads if urlsplit(url).netloc]
    for path in site[0].rglob("*.css"):
        foreign += re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*//[^;]*", path.read_text(encoding="utf-8"))
    assert foreign == []
