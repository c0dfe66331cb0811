"""A sampler as two files, to the byte; damage at random is in tests/integration/fuzz.py, a few damaged files here."""

import hashlib
import json
import os
import struct

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.files import encode_document
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers import snapshot as snapshot_module
from trl_vade.samplers.snapshot import (
    FORMAT_VERSION,
    METADATA_FILE,
    POSTERIOR_FILE,
    load_snapshot,
    save_snapshot,
    state_digest,
)


def small_sampler(steps=2):
    sampler = ThompsonSampler(5, seed=7, decay_sampled=0.5, decay_unsampled=0.75)
    for row in ([3, 1], [3, 1], [0], [4])[:steps]:
        sampler.draw(2)
        sampler.observe(row, np.full(len(row), 3), np.full(len(row), 4))
    return sampler


def restored(directory):
    sampler = small_sampler(0)
    sampler.load_state_dict(load_snapshot(directory).sampler_state)
    return sampler


def edit(path, change, *, sign=True):
    """Change the JSON; with `sign` its digest is made anew, so that the checks behind it are reached."""
    document = json.loads(path.read_text())
    change(document)
    path.write_bytes(encode_document(document) if sign else json.dumps(document).encode())


def arrays_of(path):
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rewrite(directory, **arrays):
    """Put other arrays into the posterior's file, and make both digests anew."""
    data = save({**arrays_of(directory / POSTERIOR_FILE), **arrays}, metadata={"step": "2"})
    (directory / POSTERIOR_FILE).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    edit(directory / METADATA_FILE, lambda document: document.update(posterior_sha256=digest))


def test_the_safetensors_file_is_this_to_the_byte(tmp_path):
    digest = save_snapshot(tmp_path, small_sampler())
    header = (
        b'{"__metadata__":{"step":"2"},'
        b'"last_update":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},'
        b'"sample_index":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},'
        b'"visits":{"dtype":"I64","shape":[2],"data_offsets":[32,48]},'
        b'"alpha":{"dtype":"F64","shape":[2],"data_offsets":[48,64]},'
        b'"beta":{"dtype":"F64","shape":[2],"data_offsets":[64,80]}}'
    )
    header += b" " * (-len(header) % 8)
    # rows 1 and 3: last updated in step 2, visited twice, alpha = 3/2 + 3 = 4.5, beta = 1/2 + 1 = 1.5
    data = struct.pack("<6q4d", 2, 2, 1, 3, 2, 2, 4.5, 4.5, 1.5, 1.5)
    content = (tmp_path / POSTERIOR_FILE).read_bytes()
    assert content == struct.pack("<Q", len(header)) + header + data
    assert digest == hashlib.sha256(content).hexdigest()


def test_the_json_file_is_this_to_the_letter(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_module, "__version__", "1.2.3")
    digest = save_snapshot(tmp_path, small_sampler(), metadata={"dataset": {"rows": 5}, "num_generations": 4})
    text = (tmp_path / METADATA_FILE).read_text()
    document = json.loads(text)
    own_digest = document.pop("document_sha256")
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert own_digest == hashlib.sha256(canonical.encode()).hexdigest()
    assert text == (
        "{\n"
        '  "format_version": 1,\n'
        '  "package_version": "1.2.3",\n'
        '  "step": 2,\n'
        f'  "posterior_sha256": "{digest}",\n'
        '  "sampler": {\n'
        '    "kind": "thompson",\n'
        '    "seed": 7,\n'
        '    "num_draws": 2,\n'
        '    "settings": {\n'
        '      "gain": "asymmetric",\n'
        '      "greedy": false,\n'
        '      "cooldown": 0,\n'
        '      "prior": "flat",\n'
        '      "strata": null,\n'
        '      "uniform_share": 0.0,\n'
        '      "decay_sampled": 0.5,\n'
        '      "decay_unsampled": 0.75,\n'
        '      "signal_aware_decay": false\n'
        "    },\n"
        '    "posterior": {\n'
        '      "step": 2,\n'
        '      "num_samples": 5,\n'
        '      "decay_sampled": 0.5,\n'
        '      "decay_unsampled": 0.75,\n'
        '      "signal_aware_decay": false\n'
        "    }\n"
        "  },\n"
        '  "metadata": {\n'
        '    "dataset": {\n'
        '      "rows": 5\n'
        "    },\n"
        '    "num_generations": 4\n'
        "  },\n"
        f'  "document_sha256": "{own_digest}"\n'
        "}\n"
    )


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_what_is_saved_is_what_is_loaded(tmp_path, steps):
    sampler = small_sampler(steps)
    metadata = {"success": "accuracy", "nested": {"list": [1, None, True, 0.1]}}
    digest = save_snapshot(tmp_path / "new" / "folder", sampler, metadata=metadata)
    loaded = load_snapshot(str(tmp_path / "new" / "folder"))
    assert (loaded.metadata, loaded.digest) == (metadata, digest)
    assert state_digest(restored(tmp_path / "new" / "folder")) == state_digest(sampler)


def test_a_save_replaces_the_snapshot_and_leaves_two_files(tmp_path):
    save_snapshot(tmp_path, small_sampler(1), metadata={"old": 1})
    save_snapshot(tmp_path, small_sampler(4))
    assert sorted(os.listdir(tmp_path)) == [METADATA_FILE, POSTERIOR_FILE]
    assert load_snapshot(tmp_path).metadata == {}
    assert restored(tmp_path).posterior.step == 4


def test_equal_states_have_equal_bytes(tmp_path):
    digests = {save_snapshot(tmp_path / str(i), small_sampler(4)) for i in range(5)}
    assert len(digests) == 1
    assert len({(tmp_path / str(i) / METADATA_FILE).read_bytes() for i in range(5)}) == 1


def test_the_digest_of_a_state_tells_replicas_apart():
    digest = state_digest(small_sampler())
    assert digest == state_digest(small_sampler())
    ahead, other, more = small_sampler(), small_sampler(), small_sampler()
    ahead.draw(1)
    other.observe([0], [1], [4])
    more.observe([], [], [])
    assert len({digest, *(state_digest(each) for each in (ahead, other, more, UniformSampler(5)))}) == 5


def test_a_state_that_is_no_json_has_no_digest():
    class Odd(UniformSampler):
        def state_dict(self):
            return super().state_dict() | {"extra": {1, 2}}

    with pytest.raises(TypeError, match="set"):
        state_digest(Odd(3))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, np.float64, b"bytes"])
def test_metadata_that_is_not_strict_json_is_refused_before_anything_is_written(tmp_path, value):
    with refused(ConfigurationError, names=["JSON"]):
        save_snapshot(tmp_path / "new", small_sampler(), metadata={"value": value})
    assert not (tmp_path / "new").exists()


# A crash


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_save_that_fails_at_any_point_leaves_a_complete_snapshot(tmp_path, monkeypatch, function, nth):
    old, new, newest = small_sampler(1), small_sampler(3), small_sampler(4)
    save_snapshot(tmp_path, old)
    real, calls = getattr(os, function), []

    def fails(*args):
        calls.append(args)
        if len(calls) == nth:
            raise OSError("the disk is full")
        return real(*args)

    monkeypatch.setattr(os, function, fails)
    if function == "replace" and nth > 2:  # two renames a save
        save_snapshot(tmp_path, new)
    else:
        with pytest.raises(OSError, match="disk is full"):
            save_snapshot(tmp_path, new)
    monkeypatch.undo()
    renamed = (function, nth) not in [("replace", 1), ("fsync", 1), ("fsync", 2)]
    assert state_digest(restored(tmp_path)) == state_digest(new if renamed else old)
    if not renamed:
        assert sorted(os.listdir(tmp_path)) == [METADATA_FILE, POSTERIOR_FILE]  # no temporary is left

    # The save after that one can be interrupted as well, before its first rename.
    monkeypatch.setattr(
        snapshot_module, "write_durably", lambda path, content: path.write_bytes(content[:9]) and 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        save_snapshot(tmp_path, newest)
    monkeypatch.undo()
    assert state_digest(restored(tmp_path)) == state_digest(new if renamed else old)
    save_snapshot(tmp_path, newest)
    assert sorted(os.listdir(tmp_path)) == [METADATA_FILE, POSTERIOR_FILE]
    assert state_digest(restored(tmp_path)) == state_digest(newest)


class Killed(BaseException):
    """Stands for a process that is gone: nothing is tidied up after it."""


@pytest.mark.parametrize("nth", [1, 2])
def test_a_process_that_is_killed_between_the_files_leaves_a_complete_snapshot(tmp_path, monkeypatch, nth):
    save_snapshot(tmp_path, small_sampler(1))
    real, calls = os.replace, []

    def killed(*args):
        calls.append(args)
        if len(calls) == nth:
            monkeypatch.setattr("pathlib.Path.unlink", lambda *args, **kwargs: None)
            raise Killed
        real(*args)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(Killed):
        save_snapshot(tmp_path, small_sampler(3))
    monkeypatch.undo()
    assert restored(tmp_path).posterior.step == (1 if nth == 1 else 3)
    save_snapshot(tmp_path, small_sampler(4))
    assert restored(tmp_path).posterior.step == 4
    assert sorted(os.listdir(tmp_path)) == [METADATA_FILE, POSTERIOR_FILE]


def test_a_half_written_pending_json_is_passed_over(tmp_path):
    save_snapshot(tmp_path, small_sampler(1))
    (tmp_path / (METADATA_FILE + ".pending")).write_text('{"format_version": 1, "pack')
    assert restored(tmp_path).posterior.step == 1


# What is missing, damaged or foreign


@pytest.mark.parametrize(
    ("missing", "there"), [(POSTERIOR_FILE, METADATA_FILE), (METADATA_FILE, POSTERIOR_FILE)], ids=["posterior", "json"]
)
def test_a_missing_file_is_named_with_the_one_that_is_there(tmp_path, missing, there):
    save_snapshot(tmp_path, small_sampler())
    (tmp_path / missing).unlink()
    with refused(SnapshotNotFoundError, names=[missing, there]):
        load_snapshot(tmp_path)


def test_an_empty_or_missing_directory_holds_no_snapshot(tmp_path):
    (tmp_path / "file").write_text("")
    for directory in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with refused(SnapshotNotFoundError, names=[POSTERIOR_FILE, METADATA_FILE, directory]):
            load_snapshot(directory)


@pytest.mark.parametrize("name", [POSTERIOR_FILE, METADATA_FILE])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:60] + bytes([content[60] ^ 0x10]) + content[61:],
        lambda content: content[:-7] + bytes([content[-7] ^ 0x10]) + content[-6:],
    ],
    ids=["empty", "half", "a byte at the start", "a byte at the end"],
)
def test_a_damaged_file_is_recognised(tmp_path, name, damage):
    save_snapshot(tmp_path, small_sampler())
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(damage(content))
    with refused(SnapshotCorruptError, names=[name]):
        load_snapshot(tmp_path)


def test_files_of_different_steps_are_recognised(tmp_path):
    save_snapshot(tmp_path / "one", small_sampler(1))
    save_snapshot(tmp_path / "four", small_sampler(4))
    (tmp_path / "one" / POSTERIOR_FILE).replace(tmp_path / "four" / POSTERIOR_FILE)
    with refused(SnapshotCorruptError, names=["step 1", "step 4"]):
        load_snapshot(tmp_path / "four")


@pytest.mark.parametrize("text", ["[]", "{}", '{"format_version": "1"}'])
def test_a_json_that_is_no_description_is_recognised(tmp_path, text):
    save_snapshot(tmp_path, small_sampler())
    (tmp_path / METADATA_FILE).write_text(text)
    with refused(SnapshotCorruptError, names=[METADATA_FILE]):
        load_snapshot(tmp_path)


def test_a_json_with_nan_is_refused(tmp_path):
    save_snapshot(tmp_path, small_sampler())
    edit(tmp_path / METADATA_FILE, lambda document: document["metadata"].update(score=float("nan")), sign=False)
    with refused(SnapshotCorruptError, names=["NaN", "JSON"]):
        load_snapshot(tmp_path)


@pytest.mark.parametrize("field", ["package_version", "step", "posterior_sha256", "sampler", "metadata"])
def test_a_missing_field_is_named(tmp_path, field):
    save_snapshot(tmp_path, small_sampler())
    edit(tmp_path / METADATA_FILE, lambda document: document.pop(field))
    with refused(SnapshotCorruptError, names=[field]):
        load_snapshot(tmp_path)


EDITS = [
    (lambda document: document.update(step=3), ["step 3", 2]),
    (lambda document: document["sampler"]["posterior"].update(step=3), ["step 2", 3]),
    (lambda document: document["sampler"]["posterior"].pop("step"), ["step 2", None]),
    (lambda document: document["sampler"].update(posterior=None), ["posterior"]),
    (lambda document: document.update(sampler=[]), ["posterior"]),
    (lambda document: document.update(metadata=None), ["metadata"]),
    (lambda document: document.update(posterior_sha256="0" * 64), ["000000000000"]),
    (lambda document: document["sampler"]["posterior"].update(alpha=[9.0, 9.0]), ["alpha", POSTERIOR_FILE]),
]


@pytest.mark.parametrize(("change", "names"), EDITS)
def test_a_json_that_contradicts_itself_is_recognised_although_it_is_signed(tmp_path, change, names):
    save_snapshot(tmp_path, small_sampler())
    edit(tmp_path / METADATA_FILE, change)
    with refused(SnapshotCorruptError, names=names):
        load_snapshot(tmp_path)


@pytest.mark.parametrize("name", ["seed", "num_draws"])
def test_an_edit_that_contradicts_nothing_is_recognised_all_the_same(tmp_path, name):
    """Before the JSON had a digest of its own, another seed was another run, and nobody knew."""
    save_snapshot(tmp_path, small_sampler())
    edit(tmp_path / METADATA_FILE, lambda document: document["sampler"].update({name: 8}), sign=False)
    with refused(SnapshotCorruptError, names=[METADATA_FILE, "document_sha256"]):
        load_snapshot(tmp_path)


def test_a_json_laid_out_anew_is_the_same_snapshot(tmp_path):
    sampler = small_sampler()
    save_snapshot(tmp_path, sampler, metadata={"note": "½"})
    document = json.loads((tmp_path / METADATA_FILE).read_text())
    (tmp_path / METADATA_FILE).write_text(json.dumps(document, sort_keys=True, ensure_ascii=False), encoding="utf-8")
    assert state_digest(restored(tmp_path)) == state_digest(sampler)


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    save_snapshot(tmp_path, small_sampler())
    # It may have any fields at all; the version is judged first.
    (tmp_path / METADATA_FILE).write_text(json.dumps({"format_version": FORMAT_VERSION + 1}))
    with refused(SnapshotMismatchError, names=[FORMAT_VERSION + 1, FORMAT_VERSION], offers=["Upgrade"]):
        load_snapshot(tmp_path)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (save({"alpha": np.zeros(2)}, metadata={"step": "2"}), ["alpha"]),
        (b"no tensors", ["safetensors"]),
    ],
    ids=["other tensors", "no tensors"],
)
def test_a_file_that_save_snapshot_did_not_write_is_refused_whatever_its_digest(tmp_path, data, names):
    save_snapshot(tmp_path, small_sampler())
    (tmp_path / POSTERIOR_FILE).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    edit(tmp_path / METADATA_FILE, lambda document: document.update(posterior_sha256=digest))
    with refused(SnapshotCorruptError, names=[POSTERIOR_FILE, *names]):
        load_snapshot(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},  # safetensors knows it, numpy does not
        {"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]},
        {"dtype": "F64", "shape": [1] * 70, "data_offsets": [0, 8]},
    ],
)
def test_tensors_that_numpy_cannot_hold_are_refused(tmp_path, entry):
    save_snapshot(tmp_path, small_sampler())
    header = json.dumps({"__metadata__": {"step": "2"}, "alpha": entry}).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(entry["data_offsets"][1])
    (tmp_path / POSTERIOR_FILE).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    edit(tmp_path / METADATA_FILE, lambda document: document.update(posterior_sha256=digest))
    with refused(SnapshotCorruptError, names=[POSTERIOR_FILE]):
        load_snapshot(tmp_path)


def test_a_step_that_is_no_number_at_all_is_no_second_error(tmp_path):
    save_snapshot(tmp_path, small_sampler())
    content = (tmp_path / POSTERIOR_FILE).read_bytes()
    (tmp_path / POSTERIOR_FILE).write_bytes(content.replace(b'"2"', b"1e999"))
    with refused(SnapshotCorruptError, names=[POSTERIOR_FILE, METADATA_FILE]):
        load_snapshot(tmp_path)


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_format_version_that_only_equals_one_is_refused(tmp_path, version):
    save_snapshot(tmp_path, small_sampler())
    edit(tmp_path / METADATA_FILE, lambda document: document.update(format_version=version))
    with refused(SnapshotCorruptError, names=["format_version", version]):
        load_snapshot(tmp_path)


# Who the rows are


KEYS = np.array([50, -40, 2**63 - 1, 20, -(2**63)], dtype=np.int64)


def test_the_keys_of_the_rows_ever_visited_are_saved_in_the_order_of_the_rows(tmp_path):
    digest = save_snapshot(tmp_path, small_sampler(4), sample_key=KEYS)  # rows 0, 1, 3 and 4
    loaded = load_snapshot(tmp_path)
    assert loaded.sample_key.tolist() == [50, -40, 20, -(2**63)]
    assert loaded.sample_key.dtype == np.int64
    assert loaded.digest == digest
    stored = arrays_of(tmp_path / POSTERIOR_FILE)
    assert stored["sample_key"].tolist() == [50, -40, 20, -(2**63)]
    assert stored["sample_index"].tolist() == [0, 1, 3, 4]


def test_without_keys_none_are_saved_and_none_are_loaded(tmp_path):
    save_snapshot(tmp_path, small_sampler(), sample_key=KEYS)
    save_snapshot(tmp_path, small_sampler())
    assert load_snapshot(tmp_path).sample_key is None
    assert "sample_key" not in arrays_of(tmp_path / POSTERIOR_FILE)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_keys_change_nothing_of_the_state(tmp_path, steps):
    sampler = small_sampler(steps)
    save_snapshot(tmp_path, sampler, sample_key=KEYS)
    assert load_snapshot(tmp_path).sampler_state["posterior"].keys() == sampler.state_dict()["posterior"].keys()
    assert state_digest(restored(tmp_path)) == state_digest(sampler)


def test_of_a_sampler_that_has_seen_nothing_no_key_is_saved_but_that_there_are_keys(tmp_path):
    save_snapshot(tmp_path, small_sampler(0), sample_key=KEYS)
    assert load_snapshot(tmp_path).sample_key.tolist() == []


@pytest.mark.parametrize(
    "sample_key",
    [KEYS.astype(np.int32), KEYS.astype(np.float64), KEYS[:4], np.arange(6), KEYS[:, None]],
    ids=["int32", "float64", "too few", "too many", "a column"],
)
def test_keys_that_could_not_be_joined_are_refused_before_anything_is_written(tmp_path, sample_key):
    with refused(ConfigurationError, names=["sample_key", sample_key.dtype], offers=[5]):
        save_snapshot(tmp_path / "new", small_sampler(), sample_key=sample_key)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("sample_key", [np.array([1.0, 2.0]), np.array([1, 2, 3]), np.array([[1, 2]])])
def test_a_file_with_other_keys_is_refused_whatever_its_digest(tmp_path, sample_key):
    save_snapshot(tmp_path, small_sampler(), sample_key=KEYS)
    rewrite(tmp_path, sample_key=KEYS[[1, 3]])
    load_snapshot(tmp_path)
    rewrite(tmp_path, sample_key=sample_key)
    with refused(SnapshotCorruptError, names=["sample_key", sample_key.dtype]):
        load_snapshot(tmp_path)


def test_ten_million_rows_with_one_in_a_hundred_visited_take_less_than_five_megabytes(tmp_path):
    sampler, rows = ThompsonSampler(10**7), np.arange(10**5) * 100
    sampler.observe(rows, rows % 9, np.full(rows.size, 8))
    save_snapshot(tmp_path, sampler, sample_key=np.arange(10**7))
    assert (tmp_path / POSTERIOR_FILE).stat().st_size < 5e6
    loaded = load_snapshot(tmp_path)
    resumed = ThompsonSampler(10**7)
    resumed.load_state_dict(loaded.sampler_state)
    assert loaded.sample_key.tolist() == rows.tolist()
    assert state_digest(resumed) == state_digest(sampler)
