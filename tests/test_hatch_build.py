"""The addresses in the package's metadata: those of the clone's `origin`, public, without a token, or none."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from hatch_build import ProjectAddresses, public_address, repository, with_whole_links

ROOT = Path(__file__).parents[1]
ADDRESS = "https://git.example.org/owner/repo"
PUBLIC = {
    **dict.fromkeys((ADDRESS, f"{ADDRESS}.git", f"{ADDRESS}/\n", "git@git.example.org:owner/repo.git"), ADDRESS),
    "https://user:to-ken_123@git.example.org/owner/repo": ADDRESS,
    "https://git.example.org:8443/a/b/c.git": "https://git.example.org:8443/a/b/c",
    "git@git.example.org:a/b.c/d.git": "https://git.example.org/a/b.c/d",
    **dict.fromkeys(
        ("", "/srv/git/repo.git", "../repo", "file:///srv/repo.git", "C:\\repo", "git@alias:owner/repo.git")
    ),
    **dict.fromkeys(("http://git.example.org/owner/repo", "ssh://git@git.example.org/owner/repo.git")),
    **dict.fromkeys(("https://localhost:8000/owner/repo", "https://10.0.0.2/owner/repo", "https://git.example.org")),
    **dict.fromkeys(("https://git.example.org/owner/repo?token=abc", "https://git.example.org/owner/re po")),
}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A function that makes a repository with this `origin`."""
    monkeypatch.delenv("VADE_REPOSITORY_URL", raising=False)

    def make(origin=None):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        if origin:
            subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", origin], check=True)
        (tmp_path / "README.md").write_text("![picture](docs/p.png)")
        return tmp_path

    return make


def test_a_public_remote_becomes_its_https_address_without_user_and_token_and_no_other_does():
    assert {remote: public_address(remote) for remote in PUBLIC} == PUBLIC


def test_the_address_is_the_variables_or_the_origins_and_that_of_no_folder_around(clone, monkeypatch):
    root = clone(f"https://user:secret@{ADDRESS.removeprefix('https://')}.git")
    (root / "vendored").mkdir()
    assert (repository(root), repository(root / "vendored")) == (ADDRESS, None)
    for value, expected in (("git@git.example.org:you/fork.git", "https://git.example.org/you/fork"), ("", None)):
        monkeypatch.setenv("VADE_REPOSITORY_URL", value)
        assert repository(root) == expected
    monkeypatch.setenv("VADE_REPOSITORY_URL", "/srv/repo")
    with pytest.raises(ValueError, match="VADE_REPOSITORY_URL"):
        repository(root)
    monkeypatch.delenv("VADE_REPOSITORY_URL")
    monkeypatch.setenv("PATH", "")  # there is no git
    assert repository(root) is None


def test_an_unpacked_sdist_keeps_its_address(clone, tmp_path):
    lines = ["Metadata-Version: 2.4", "Project-URL: Paper, https://arxiv.org", f"Project-URL: Repository, {ADDRESS}"]
    (tmp_path / "PKG-INFO").write_text("\n".join([*lines, "", "Project-URL: Repository, https://of.the/readme"]))
    assert repository(tmp_path) == ADDRESS


def test_relative_links_and_images_of_the_readme_become_absolute_and_nothing_else_changes():
    readme = "[a](docs/a.md#b) ![c](docs/c.png) [d](https://d.org) [e](#e) [f](mailto:f)\n"
    readme += "```py\n[g](docs/a.md)\n```\n[i](LICENSE)"
    assert with_whole_links(readme, ADDRESS) == (
        readme.replace("docs/a.md#", f"{ADDRESS}/blob/HEAD/docs/a.md#")
        .replace("docs/c.png", f"{ADDRESS}/raw/HEAD/docs/c.png")
        .replace("LICENSE", f"{ADDRESS}/blob/HEAD/LICENSE")
    )


@pytest.mark.parametrize("origin", [ADDRESS, None])
def test_with_an_address_the_metadata_name_every_place_else_the_paper_alone(clone, origin):
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    ProjectAddresses(str(clone(origin)), config["custom"]).update(metadata := {})
    places = {"Repository", "Documentation", "Changelog", "Issues"} if origin else set()
    assert metadata["urls"].keys() == {"Paper", *places}
    assert all(metadata["urls"][name].startswith(ADDRESS) for name in places)
    whole = f"{ADDRESS}/raw/HEAD/docs/p.png" if origin else "docs/p.png"
    assert metadata["readme"]["text"] == f"![picture]({whole})"
