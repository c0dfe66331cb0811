"""A file is there whole or not at all; files that come with the package are found in a wheel and in the repository."""

import os
from pathlib import Path

import pytest

from tests.support.refusals import refused
from trl_vade import files
from trl_vade.files import packaged, save_whole


def test_a_file_is_written_into_a_new_folder_and_replaced(tmp_path):
    path = tmp_path / "new" / "folder" / "file.bin"
    for content in (b"a longer first content", b"second"):
        save_whole(path, content)
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file.bin"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_disk_that_refuses_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    save_whole(tmp_path / "file.bin", b"old")

    def refuses(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, function, refuses)
    with pytest.raises(OSError, match="disk is full"):
        save_whole(tmp_path / "file.bin", b"new")
    assert (tmp_path / "file.bin").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    """Without either a power cut could leave an empty file under the right name."""
    events, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("fsync") or fsync(descriptor))
    monkeypatch.setattr(os, "replace", lambda *paths: events.append("replace") or replace(*paths))
    save_whole(tmp_path / "a", b"content")
    assert events == (["fsync", "replace", "fsync"] if os.name == "posix" else ["fsync", "replace"])


def test_what_comes_with_the_package_lies_in_it_or_beside_it_in_the_repository(tmp_path, monkeypatch):
    for name in ("model_cards/posterior.md", "eval/tasks/vade_testbed.yaml", "eval/metrics"):
        assert packaged(name).samefile(Path(__file__).parents[1] / name)
    package = tmp_path / "site-packages" / "trl_vade"
    monkeypatch.setattr(files, "_PACKAGE", package)
    with refused(FileNotFoundError, [package / "eval", package.parent / "eval"]):
        packaged("eval")
    for place in (package, package.parent):  # the latter is somebody else's
        (place / "eval" / "tasks").mkdir(parents=True)
    assert packaged("eval/tasks") == package / "eval" / "tasks"
