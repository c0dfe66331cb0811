"""The addresses in the package's metadata: those of the clone's `origin`, public, without a token, or none."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from hatch_build import ProjectAddresses, public_address, repository, with_whole_links

ROOT = Path(__file__).parents[1]
ADDRESS = "https://git.example.org/owner/repo"


@pytest.fixture(autouse=True)
def no_override(monkeypatch):
    monkeypatch.delenv("VADE_REPOSITORY_URL", raising=False)


@pytest.fixture
def clone(tmp_path):
    """A function that makes a repository with this `origin`."""

    def make(origin=None):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        if origin:
            subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", origin], check=True)
        return tmp_path

    return make


@pytest.mark.parametrize(
    "remote",
    [
        ADDRESS,
        f"{ADDRESS}.git",
        f"{ADDRESS}/\n",
        "https://user@git.example.org/owner/repo.git",
        "https://user:to-ken_123@git.example.org/owner/repo",
        "git@git.example.org:owner/repo.git",
        "git@git.example.org:owner/repo",
    ],
)
def test_a_public_remote_becomes_its_https_address_without_user_and_token(remote):
    assert public_address(remote) == ADDRESS


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://git.example.org:8443/a/b/c.git", "https://git.example.org:8443/a/b/c"),
        ("git@git.example.org:a/b.c/d.git", "https://git.example.org/a/b.c/d"),
    ],
)
def test_ports_and_groups_stay(remote, address):
    assert public_address(remote) == address


@pytest.mark.parametrize(
    "remote",
    [
        "",
        "/srv/git/repo.git",
        "../repo",
        "file:///srv/repo.git",
        "C:\\repo",
        "http://git.example.org/owner/repo",
        "ssh://git@git.example.org/owner/repo.git",
        "git@alias:owner/repo.git",
        "https://localhost:8000/owner/repo",
        "https://10.0.0.2/owner/repo",
        "https://git.example.org",
        "https://git.example.org/owner/repo?token=abc",
        "https://git.example.org/owner/re po",
    ],
)
def test_anything_else_is_no_address(remote):
    assert public_address(remote) is None


def test_the_address_is_that_of_the_clones_origin(clone):
    assert repository(clone(f"https://user:secret@{ADDRESS.removeprefix('https://')}.git")) == ADDRESS


def test_a_clone_without_an_origin_has_no_address(clone):
    assert repository(clone()) is None


def test_a_folder_inside_somebody_elses_repository_has_not_its_address(clone):
    folder = clone(ADDRESS) / "vendored"
    folder.mkdir()
    assert repository(folder) is None


def test_without_git_there_is_no_address(clone, monkeypatch):
    root = clone(ADDRESS)
    monkeypatch.setenv("PATH", "")
    assert repository(root) is None


def test_the_variable_comes_before_the_origin(clone, monkeypatch):
    root = clone(ADDRESS)
    monkeypatch.setenv("VADE_REPOSITORY_URL", "git@git.example.org:you/fork.git")
    assert repository(root) == "https://git.example.org/you/fork"
    monkeypatch.setenv("VADE_REPOSITORY_URL", "")
    assert repository(root) is None
    monkeypatch.setenv("VADE_REPOSITORY_URL", "/srv/repo")
    with pytest.raises(ValueError, match="VADE_REPOSITORY_URL"):
        repository(root)


def test_an_unpacked_sdist_keeps_its_address(tmp_path):
    lines = ["Metadata-Version: 2.4", "Project-URL: Paper, https://arxiv.org", f"Project-URL: Repository, {ADDRESS}"]
    (tmp_path / "PKG-INFO").write_text("\n".join([*lines, "", "Project-URL: Repository, https://of.the/readme"]))
    assert repository(tmp_path) == ADDRESS
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\n")
    assert repository(tmp_path) is None


def test_relative_links_and_images_of_the_readme_become_absolute_and_nothing_else_changes():
    readme = "[a](docs/a.md#b) ![c](docs/c.png) [d](https://d.org) [e](#e) [f](mailto:f)\n"
    readme += "```py\n[g](docs/a.md)\n```\n[i](LICENSE)"
    assert with_whole_links(readme, ADDRESS) == (
        readme.replace("docs/a.md#", f"{ADDRESS}/blob/HEAD/docs/a.md#")
        .replace("docs/c.png", f"{ADDRESS}/raw/HEAD/docs/c.png")
        .replace("LICENSE", f"{ADDRESS}/blob/HEAD/LICENSE")
    )


def test_every_relative_link_of_our_readme_becomes_absolute():
    readme = with_whole_links((ROOT / "README.md").read_text(encoding="utf-8"), ADDRESS)
    assert ADDRESS in readme
    for relative in ("](docs/", "](CHANGELOG", "](LICENSE", "](eval/", "](trl_vade/", "](scripts/", "](examples/"):
        assert relative not in readme


def metadata_of(root):
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    metadata = {}
    ProjectAddresses(str(root), config["custom"]).update(metadata)
    return metadata


def test_with_an_address_the_metadata_name_every_place(clone):
    root = clone(ADDRESS)
    (root / "README.md").write_text("![picture](docs/p.png)")
    metadata = metadata_of(root)
    assert metadata["urls"].keys() == {"Paper", "Repository", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(ADDRESS) for name, url in metadata["urls"].items() if name != "Paper")
    for place in ("Documentation", "Changelog"):
        assert (ROOT / metadata["urls"][place].partition("/HEAD/")[2]).is_file()
    assert metadata["readme"]["text"] == f"![picture]({ADDRESS}/raw/HEAD/docs/p.png)"


def test_without_an_address_there_is_the_paper_alone_and_the_readme_as_it_is(clone):
    root = clone()
    (root / "README.md").write_text("![picture](docs/p.png)")
    metadata = metadata_of(root)
    assert metadata["urls"].keys() == {"Paper"}
    assert metadata["readme"]["text"] == "![picture](docs/p.png)"
