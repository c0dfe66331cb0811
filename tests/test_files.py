"""A file is there whole or not at all; a JSON file that can be trusted: what went in comes out, and nothing else does.

Damage at random is in tests/integration/fuzz.py; here are a few damaged files of each sort.
"""

import hashlib
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


def encode(fields):
    return encode_document({"format_version": FORMAT_VERSION, **fields})


def parse(content, fields=()):
    return parse_document(PATH, content, fields)


def exact(value):
    """1, 1.0 and True are one value to `==` and three to a reader of JSON."""
    return json.dumps(value, sort_keys=True)


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_the_document_is_this_to_the_letter():
    """The fields are in the order of their names, without a blank; so are those of the digest, without itself."""
    start, end = b'{"b":[1,0.5,null],"caf\\u00e9":{"deep":true},', b'"format_version":1}'
    fields = {"format_version": 1, "caf\u00e9": {"deep": True}, "b": [1, 0.5, None]}
    for given_digest in (None, "ab" * 32):
        digest = given_digest or hashlib.sha256(start + end).hexdigest()
        content = encode_document(fields, digest=given_digest)
        assert content == start + b'"document_sha256":"' + digest.encode() + b'",' + end
        assert parse_document(PATH, content, (), digest=given_digest) == fields
        with refused(SnapshotCorruptError, names=[digest, "cd" * 32]):
            parse_document(PATH, content, (), digest="cd" * 32)


@given(FIELDS)
def test_what_is_written_is_what_is_read(fields):
    document = parse(encode(fields), fields)
    assert exact(document) == exact({"format_version": FORMAT_VERSION, **fields})


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"deep":true', b'"deep":1'), (b'"b":[', b'"c":['), (b"0.5", b"0.4"), (b"0.5", b"1e999"), (b"null", b"nul")],
)
def test_an_altered_file_is_refused(old, new):
    content = encode({"café": {"deep": True}, "b": [1, 0.5, None]})
    assert content.count(old) == 1
    with refused(SnapshotCorruptError, names=[PATH.name]):
        parse(content.replace(old, new))


@given(
    FIELDS,
    st.fixed_dictionaries(
        {"indent": st.sampled_from([None, 0, 1, 7, "\t"]), "ensure_ascii": st.booleans(), "sort_keys": st.booleans()}
    ),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_a_file_laid_out_anew_is_the_same_document(fields, layout, encoding):
    content = encode(fields)
    backwards = dict(reversed(json.loads(content).items()))
    assert exact(parse(json.dumps(backwards, **layout).encode(encoding))) == exact(parse(content))


@given(FIELDS)
def test_a_document_that_was_read_can_be_signed_again(fields):
    """As somebody does who edits one on purpose: the old digest is still among the fields."""
    edited = json.loads(encode(fields)) | {"edited": True}
    assert exact(parse(encode_document(edited))) == exact({"format_version": FORMAT_VERSION, **fields, "edited": True})


@pytest.mark.parametrize(("key", "text"), [(1, "1"), (None, "null"), (True, "true"), (0.5, "0.5")])
def test_keys_that_are_no_strings_are_read_as_json_writes_them(key, text):
    assert parse(encode({"field": {key: "value"}}))["field"] == {text: "value"}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), {1, 2}, b"bytes", object(), 10**5000, nested(100_000)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_strict_json_is_refused_at_any_depth(value):
    for fields in ({"field": value}, {"field": [{"deep": value}]}):
        with refused(ConfigurationError, names=["JSON"]):
            encode(fields)


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with refused(ConfigurationError, names=["JSON"]):
        encode({"field": value})


def test_a_digest_of_its_own_is_needed():
    document = json.loads(encode({"field": 1}))
    document.pop("document_sha256")
    with refused(SnapshotCorruptError, names=["document_sha256", None]):
        parse(json.dumps(document).encode())


def test_missing_fields_are_named_and_others_may_be_there():
    content = encode({"there": 1, "also": 2})
    assert parse(content, ["there"])["also"] == 2
    with refused(SnapshotCorruptError, names=["step", "sampler"]):
        parse(content, ["step", "there", "sampler"])


@pytest.mark.parametrize("fields", [{}, {"all": "other fields"}, {"document_sha256": "wrong"}])
def test_a_newer_format_asks_for_an_upgrade_whatever_else_it_holds(fields):
    content = json.dumps({"format_version": FORMAT_VERSION + 1, **fields}).encode()
    with refused(SnapshotMismatchError, names=[PATH, FORMAT_VERSION + 1, FORMAT_VERSION], offers=["Upgrade"]):
        parse(content, ["step"])


@pytest.mark.parametrize("version", [0, -1, 0.5, "1", None, [1], {}])
def test_a_format_that_never_was_is_refused_although_it_is_signed(version):
    with refused(SnapshotCorruptError, names=[PATH]):
        parse(encode({"format_version": version}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"{}",
        b"\xff\xfe\xff",
        b'{"format_version": 1}',
        b'{"format_version": NaN}',
        b"[" * 100_000,
    ],
    ids=lambda content: content[:40].decode(errors="replace"),
)
def test_what_is_no_document_is_refused_with_its_path(content):
    with refused(SnapshotCorruptError, names=[PATH]):
        parse(content)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_refused_although_it_is_signed(number):
    fields = f'{{"format_version":1,"score":{number.replace("1e999", "Infinity")}}}'
    digest = hashlib.sha256(fields.encode()).hexdigest()
    with refused(SnapshotCorruptError, names=["JSON"]):
        parse(f'{{"format_version": 1, "score": {number}, "document_sha256": "{digest}"}}'.encode())


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
