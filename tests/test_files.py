"""A file is there whole or not at all; a JSON file that can be trusted: what went in comes out, and nothing else does.

Damage at random is in tests/integration/fuzz.py; here are a few damaged files of each sort.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refused
from trl_vade import files
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.files import (
    FORMAT_VERSION,
    encode_document,
    packaged,
    parse_document,
    replace_durably,
    save_whole,
    write_durably,
)

PATH = Path("folder") / "document.json"
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=12
)
# Every name begins with an x, so that none is `format_version` or the digest's.
FIELDS = st.dictionaries(st.text().map("x{}".format), VALUES, max_size=4)


DIGEST = "ab" * 32


def encode(fields):
    return encode_document({"format_version": FORMAT_VERSION, **fields}, DIGEST)


def parse(content, fields=(), digest=DIGEST):
    return parse_document(PATH, content, fields, digest)


def exact(value):
    """1, 1.0 and True are one value to `==` and three to a reader of JSON."""
    return json.dumps(value, sort_keys=True)


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_the_document_is_this_to_the_letter():
    """The fields are in the order of their names, without a blank."""
    content = encode({"caf\u00e9": {"deep": True}, "b": [1, 0.5, None]})
    fields = b'"b":[1,0.5,null],"caf\\u00e9":{"deep":true},"document_sha256":"' + DIGEST.encode()
    assert content == b"{" + fields + b'","format_version":1}'
    with refused(SnapshotCorruptError, names=[DIGEST, "cd" * 32]):
        parse(content, digest="cd" * 32)


@given(FIELDS)
def test_what_is_written_is_what_is_read(fields):
    assert exact(parse(encode(fields), fields)) == exact({"format_version": FORMAT_VERSION, **fields})


@pytest.mark.parametrize(("key", "text"), [(1, "1"), (None, "null"), (True, "true"), (0.5, "0.5")])
def test_keys_that_are_no_strings_are_read_as_json_writes_them(key, text):
    assert parse(encode({"field": {key: "value"}}))["field"] == {text: "value"}


def test_what_is_not_strict_json_is_refused_at_any_depth():
    itself = []
    itself.append(itself)
    for value in (float("nan"), -float("inf"), {1, 2}, b"bytes", object(), 10**5000, nested(100_000), itself):
        for fields in ({"field": value}, {"field": [{"deep": value}]}):
            with refused(ConfigurationError, names=["JSON"]):
                encode(fields)


def test_missing_fields_are_named_and_others_may_be_there():
    content = encode({"there": 1, "also": 2})
    assert parse(content, ["there"])["also"] == 2
    with refused(SnapshotCorruptError, names=["step", "sampler"]):
        parse(content, ["step", "there", "sampler"])


def test_a_newer_format_asks_for_an_upgrade_whatever_else_it_holds():
    for fields in ({}, {"all": "other fields"}, {"document_sha256": "wrong"}):
        content = json.dumps({"format_version": FORMAT_VERSION + 1, **fields}).encode()
        with refused(SnapshotMismatchError, names=[PATH, FORMAT_VERSION + 1, FORMAT_VERSION], offers=["Upgrade"]):
            parse(content, ["step"])


NO_DOCUMENTS = (b"", b"{", b"null", b"{}", b"\xff\xfe\xff", b'{"format_version": 1}', b"[" * 100_000)


def test_what_is_no_document_is_refused_with_its_path():
    for content in NO_DOCUMENTS:
        with refused(SnapshotCorruptError, names=[PATH]):
            parse(content)
    for version in (0, -1, 0.5, "1", None, True, 1.0, [1], {}):
        with refused(SnapshotCorruptError, names=[PATH]):
            parse(encode({"format_version": version}))
    for number in (b"NaN", b"Infinity", b"-Infinity"):
        with refused(SnapshotCorruptError, names=["JSON"]):
            parse(encode({"score": 0.5}).replace(b"0.5", number))


# ------------------------------------------------------------------------------------------------------- the disk


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


# ----------------------------------------------------------------------------------- files that come with the package


@pytest.mark.parametrize("name", ["model_cards/posterior.md", "eval/tasks/vade_testbed.yaml", "eval/metrics"])
def test_in_the_repository_they_lie_beside_the_package(name):
    assert packaged(name).samefile(Path(__file__).parents[1] / name)


def test_a_wheel_has_them_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "trl_vade"
    beside = package.parent / "eval" / "tasks"  # of somebody else
    (package / "eval" / "tasks").mkdir(parents=True)
    beside.mkdir(parents=True)
    monkeypatch.setattr(files, "_PACKAGE", package)
    assert packaged("eval/tasks") == package / "eval" / "tasks"


def test_an_installation_without_them_names_both_places(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PACKAGE", tmp_path / "trl_vade")
    with refused(FileNotFoundError, [tmp_path / "trl_vade" / "eval", tmp_path / "eval"]):
        packaged("eval")
