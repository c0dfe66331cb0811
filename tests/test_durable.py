"""A file is there whole or not at all, whatever the disk does."""

import os

import pytest

from trl_vade.files import replace_durably, save_whole, write_durably


def test_a_file_is_written_into_a_folder_that_was_not_there(tmp_path):
    path = tmp_path / "new" / "folder" / "file.bin"
    save_whole(path, b"content")
    assert path.read_bytes() == b"content"
    assert os.listdir(path.parent) == ["file.bin"]


def test_a_file_is_replaced(tmp_path):
    for content in (b"a longer first content", b"second"):
        save_whole(tmp_path / "file.bin", content)
        assert (tmp_path / "file.bin").read_bytes() == content
    assert os.listdir(tmp_path) == ["file.bin"]


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
    write_durably(tmp_path / "a", b"content")
    replace_durably(tmp_path / "a", tmp_path / "b")
    assert events == (["fsync", "replace", "fsync"] if os.name == "posix" else ["fsync", "replace"])
