"""The built site: no warning, no dead link, nothing from another host. Needs the extra `docs`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import DOCS, ROOT

pytestmark = pytest.mark.docs
LOADED = re.compile(r'<(?:script|img|iframe|source|video|link)\b[^>]*?\b(?:src|href)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a fresh build without HTTP. `--strict` makes errors of dead links and anchors, and of warnings."""
    work = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, work / "docs")
    shutil.copy(ROOT / "zensical.toml", work)
    (work / "trl_vade").symlink_to(ROOT / "trl_vade")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    done = subprocess.run(command, cwd=work, env=os.environ | nowhere, capture_output=True, text=True, timeout=120)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).splitlines()
    usual = ("Build started", "No issues found", "Build finished")
    assert (done.returncode, [line for line in said if line.strip() and not line.startswith(usual)]) == (0, [])
    return work / "site"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_other_documents_lead_to_files_and_headings_that_are_there(name, site):
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if not link.startswith(("https://", "../../actions/")):  # the second is of the host
            assert (ROOT / path).exists(), link
            if path.startswith("docs/") and anchor:
                page = (site / path.removeprefix("docs/")).with_suffix(".html")
                assert f'id="{anchor}"' in page.read_text(encoding="utf-8"), link


def test_pages_load_what_is_there_and_nothing_from_another_host(site):
    elsewhere = []
    for page in site.rglob("*.html"):
        root = site if page.name == "404.html" else page.parent
        for url in map(urlsplit, LOADED.findall(page.read_text(encoding="utf-8"))):
            there = not url.netloc and (root / unquote(url.path).lstrip("/")).exists()
            elsewhere += [] if there else [f"{page.name}: {url.geturl()}"]
    for path in site.rglob("*.css"):
        loading = r"url\(['\"]?(?:https?:)?//[^)]*|@import[^;]*//[^;]*"
        elsewhere += re.findall(loading, path.read_text(encoding="utf-8"))
    assert elsewhere == []


def test_the_menu_has_three_shelves_with_every_page_once():
    shelves = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    named = [page for shelf in shelves for entries in shelf.values() for entry in entries for page in entry.values()]
    assert len(shelves) == 3
    for_readers = [path for path in DOCS.rglob("*.md") if path.parent.name != "upstream"]
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in for_readers)
