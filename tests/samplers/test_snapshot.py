"""A sampler as one file: to the byte, and each byte altered; damage at random is in tests/integration/fuzz.py."""

import hashlib
import json
import os
import struct
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers import snapshot as snapshot_module
from trl_vade.samplers.snapshot import (
    FORMAT_VERSION,
    MOST_HEADER,
    POSTERIOR_FILE,
    load_snapshot,
    save_snapshot,
    state_digest,
)


def small_sampler(steps=2):
    sampler = ThompsonSampler(5, seed=7, decay_sampled=0.5, decay_unsampled=0.75, signal_aware_decay=False)
    for row in ([3, 1], [3, 1], [0], [4])[:steps]:
        sampler.draw(2)
        sampler.observe(row, np.full(len(row), 3), np.full(len(row), 4))
    return sampler


def restored(directory):
    sampler = small_sampler(0)
    sampler.load_state_dict(load_snapshot(directory).sampler_state)
    return sampler


def content_of(path):
    """Read the arrays and the document of a snapshot."""
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["vade_posterior"])


def written(directory, arrays, document):
    """Write a snapshot with a right digest, whatever is in it, as another program could."""
    text = json.dumps({**document, "document_sha256": "0" * 64}, sort_keys=True, separators=(",", ":"))
    content = arrays if isinstance(arrays, bytes) else save(arrays, metadata={"vade_posterior": text})
    digest = hashlib.sha256(content).hexdigest()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / POSTERIOR_FILE).write_bytes(content.replace(b"0" * 64, digest.encode(), 1))
    return directory


def edited(folder, change=lambda document: None, **arrays):
    """Save a snapshot, change its arrays or document, and sign it again."""
    save_snapshot(folder, small_sampler(), sample_key=KEYS)
    saved, document = content_of(folder / POSTERIOR_FILE)
    change(document)
    return written(folder, {**saved, **arrays}, document)


def test_the_file_is_this_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_module, "__version__", "1.2.3")
    digest = save_snapshot(tmp_path, small_sampler(), metadata={"rows": 5, "dataset": {"b": 1, "a": "\u00bd"}})
    document = (
        '{"document_sha256":"%s","format_version":1,'
        '"metadata":{"dataset":{"a":"\\u00bd","b":1},"rows":5},"package_version":"1.2.3",'
        '"sampler":{"kind":"thompson","num_draws":2,'
        '"posterior":{"decay_sampled":0.5,"decay_unsampled":0.75,"num_samples":5,"signal_aware_decay":false,"step":2},'
        '"seed":7,"settings":{"cooldown":0,"decay_sampled":0.5,"decay_unsampled":0.75,"gain":"asymmetric",'
        '"greedy":false,"prior":"flat","signal_aware_decay":false}}}'
    )

    def file_with(own_digest):
        header = b'{"__metadata__":{"vade_posterior":' + json.dumps(document % own_digest).encode() + b"},"
        header += (
            b'"last_update":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},'
            b'"sample_index":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},'
            b'"visits":{"dtype":"I64","shape":[2],"data_offsets":[32,48]},'
            b'"alpha":{"dtype":"F64","shape":[2],"data_offsets":[48,64]},'
            b'"beta":{"dtype":"F64","shape":[2],"data_offsets":[64,80]}}'
        )
        header += b" " * (-len(header) % 8)
        # rows 1 and 3: last updated in step 2, visited twice, alpha = 3/2 + 3 = 4.5, beta = 1/2 + 1 = 1.5
        data = struct.pack("<6q4d", 2, 2, 1, 3, 2, 2, 4.5, 4.5, 1.5, 1.5)
        return struct.pack("<Q", len(header)) + header + data

    own_digest = hashlib.sha256(file_with("0" * 64)).hexdigest()
    content = (tmp_path / POSTERIOR_FILE).read_bytes()
    assert content == file_with(own_digest)
    assert digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_what_is_saved_is_what_is_loaded_from_the_folder_or_the_file(tmp_path, steps):
    sampler = small_sampler(steps)
    metadata = {"success": "accuracy", "nested": {"list": [1, None, True, 0.1]}, "zeros": "0" * 64}
    digest = save_snapshot(tmp_path / "new" / "folder", sampler, metadata=metadata)
    for place in (str(tmp_path / "new" / "folder"), tmp_path / "new" / "folder" / POSTERIOR_FILE):
        loaded = load_snapshot(place)
        assert (loaded.metadata, loaded.digest) == (metadata, digest)
        assert state_digest(restored(place)) == state_digest(sampler)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_any_metadata_are_read_as_json_writes_them(metadata):
    """1, 1.0 and True are one value to `==` and three to a reader of JSON; a key that is no text becomes one."""
    with tempfile.TemporaryDirectory() as folder:
        save_snapshot(folder, small_sampler(), metadata={"any": metadata, "keys": {1: "a", None: "b"}})
        read = load_snapshot(folder).metadata
    expected = {"any": metadata, "keys": {"1": "a", "null": "b"}}
    assert json.dumps(read, sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_the_digest_of_a_state_tells_replicas_apart():
    same, ahead, other, more = (small_sampler() for _ in range(4))
    ahead.draw(1)
    other.observe([0], [1], [4])
    more.observe([], [], [])
    assert state_digest(same) == state_digest(small_sampler())
    assert len({state_digest(each) for each in (same, ahead, other, more, UniformSampler(5))}) == 5


def test_what_cannot_be_read_back_or_joined_is_refused_before_anything_is_written(tmp_path):
    itself, nested = [], 0
    itself.append(itself)
    for _ in range(100_000):
        nested = [nested]
    strange = [float("nan"), -float("inf"), {1, 2}, b"bytes", object(), 10**5000, nested, itself]
    for value in (*strange, [{"deep": float("nan")}], "x" * MOST_HEADER):
        with refused(ConfigurationError, names=["JSON"]):
            save_snapshot(tmp_path / "new", small_sampler(), metadata={"value": value})
    for keys in (KEYS.astype(np.int32), KEYS.astype(np.float64), KEYS[:4], np.arange(6), KEYS[:, None]):
        with refused(ConfigurationError, names=["sample_key", keys.dtype], offers=[5]):
            save_snapshot(tmp_path / "new", small_sampler(), sample_key=keys)
    assert not (tmp_path / "new").exists()


def test_a_save_that_is_interrupted_leaves_the_snapshot_before_it(tmp_path, monkeypatch):
    save_snapshot(tmp_path, small_sampler(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *paths: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save_snapshot(tmp_path, small_sampler(3))
    (tmp_path / f"{POSTERIOR_FILE}.tmp").write_bytes(b"what kill -9 leaves")
    assert restored(tmp_path).posterior.step == 1
    save_snapshot(tmp_path, small_sampler(4))
    assert os.listdir(tmp_path) == [POSTERIOR_FILE]
    assert (restored(tmp_path).posterior.step, load_snapshot(tmp_path).sample_key) == (4, None)


def test_an_empty_or_missing_directory_holds_no_snapshot(tmp_path):
    (tmp_path / "file").write_text("")
    for directory in (tmp_path, tmp_path / "nowhere", tmp_path / "file", tmp_path / "lost.safetensors"):
        with refused(SnapshotNotFoundError, names=[POSTERIOR_FILE, directory]):
            load_snapshot(directory)


@pytest.mark.slow
def test_each_altered_byte_is_recognised_and_each_truncation(tmp_path):
    save_snapshot(tmp_path, small_sampler(), metadata={"note": "a"}, sample_key=KEYS)
    path = tmp_path / POSTERIOR_FILE
    content = path.read_bytes()
    for place in range(len(content)):
        for damaged in (content[:place], content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(SnapshotCorruptError, match=POSTERIOR_FILE):
                load_snapshot(tmp_path)


def test_what_would_take_too_much_memory_is_not_read(tmp_path):
    for size in (MOST_HEADER + 1, 2**64 - 1):
        with (tmp_path / POSTERIOR_FILE).open("wb") as file:
            file.write(struct.pack("<Q", size))
            file.truncate(2**34)  # a sparse file: reading it would take 16 GiB
        with refused(SnapshotCorruptError, names=[f"{size:,}", f"{MOST_HEADER:,}"]):
            load_snapshot(tmp_path)
    save_snapshot(tmp_path, small_sampler(4), sample_key=KEYS)
    os.truncate(tmp_path / POSTERIOR_FILE, 2**40)  # a sparse file of 1 TiB
    with refused(SnapshotCorruptError, names=[POSTERIOR_FILE]):
        load_snapshot(tmp_path)


EDITS = [
    *(("format_version", value) for value in (0, -1, 0.5, 1.0, "1", None, True, [1])),
    *(("sampler", []), ("sampler", {"posterior": None}), ("metadata", None), ("metadata", {"score": float("nan")})),
]


def test_a_document_that_save_snapshot_did_not_write_is_refused_although_it_is_signed(tmp_path):
    changes = [lambda document, edit=edit: document.update([edit]) for edit in EDITS]
    changes += [lambda document, name=name: document.pop(name) for name in DOCUMENT]
    for change in changes:
        with refused(SnapshotCorruptError, names=[POSTERIOR_FILE]):
            load_snapshot(edited(tmp_path, change))
    for keys in (np.array([1.0, 2.0]), np.array([1, 2, 3]), np.array([[1, 2]])):
        with refused(SnapshotCorruptError, names=["sample_key", keys.dtype]):
            load_snapshot(edited(tmp_path, sample_key=keys))
    load_snapshot(edited(tmp_path, sample_key=KEYS[[1, 3]]))


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    """It may have any fields at all; the version is judged first."""

    def newer(document):
        document.clear()
        document["format_version"] = FORMAT_VERSION + 1

    with refused(SnapshotMismatchError, names=[FORMAT_VERSION + 1, FORMAT_VERSION], offers=["Upgrade"]):
        load_snapshot(edited(tmp_path, newer))


def with_header(metadata, entry=None):
    header = json.dumps({"__metadata__": metadata} | ({"alpha": entry} if entry else {})).encode()
    return struct.pack("<Q", len(header)) + header + bytes(entry["data_offsets"][1] if entry else 0)


DOCUMENT = {"format_version": 1, "package_version": "1", "sampler": {"posterior": {}}, "metadata": {}}
TEXT = json.dumps(DOCUMENT | {"document_sha256": "0" * 64}, sort_keys=True, separators=(",", ":"))
STRANGE = [
    *(b"no tensors", save({"alpha": np.zeros(2)}), with_header(None), with_header({"vade_posterior": 1})),
    *(struct.pack("<Q", 200_000) + b"[" * 200_000, with_header({"vade_posterior": TEXT})),
    # safetensors knows this type, numpy does not
    with_header({"vade_posterior": TEXT}, {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}),
    with_header({"vade_posterior": TEXT}, {"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}),
]


def test_a_file_that_save_snapshot_did_not_write_is_refused_whatever_its_digest(tmp_path):
    for content in STRANGE:
        with refused(SnapshotCorruptError, names=[POSTERIOR_FILE]):
            load_snapshot(written(tmp_path, content, {}))


KEYS = np.array([50, -40, 2**63 - 1, 20, -(2**63)], dtype=np.int64)


def test_the_keys_of_the_rows_ever_visited_are_saved_in_the_order_of_the_rows(tmp_path):
    save_snapshot(tmp_path, small_sampler(4), sample_key=KEYS)  # rows 0, 1, 3 and 4
    found = load_snapshot(tmp_path).sample_key
    assert (found.dtype, found.tolist()) == (np.int64, [50, -40, 20, -(2**63)])
    stored, _ = content_of(tmp_path / POSTERIOR_FILE)
    assert stored["sample_key"].tolist() == found.tolist()
    assert stored["sample_index"].tolist() == [0, 1, 3, 4]
