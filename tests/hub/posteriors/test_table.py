"""The table of a posterior: the sampler's counts, row by row, and a file that a stranger may have written."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.posteriors import RUN, same, trained
from tests.support.refusals import refused
from trl_vade import ThompsonSampler, load_snapshot, save_snapshot
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError
from trl_vade.files import encode_document
from trl_vade.hub.posteriors.table import (
    METADATA_KEY,
    PosteriorTable,
    facts_of,
    posterior_table,
    read_table,
    write_table,
)
from trl_vade.hub.uploading import hub_id


@pytest.fixture
def sampler():
    return trained(ThompsonSampler(10, seed=7, signal_aware_decay=True))


@pytest.fixture
def snapshot(sampler, tmp_path):
    save_snapshot(tmp_path / "saved", sampler, metadata=RUN, sample_key=np.arange(-5, 5, dtype=np.int64))
    return load_snapshot(tmp_path / "saved")


def scored(snapshot, values):
    """The values of the rows that were scored."""
    return [values[row] for row in snapshot.sampler_state["posterior"]["sample_index"].tolist()]


# ------------------------------------------------------------------------------------------------- from a snapshot


@settings(max_examples=30)
@given(batches=st.integers(1, 30), decay=st.sampled_from([0.0, 0.5, 0.999, 1.0]), seed=st.integers(0, 99))
def test_the_counts_are_those_that_the_sampler_chooses_by(tmp_path_factory, batches, decay, seed):
    sampler = trained(ThompsonSampler(10, decay_unsampled=decay), batches, seed=seed)
    folder = tmp_path_factory.mktemp("saved")
    save_snapshot(folder, sampler, sample_key=np.arange(10))
    table, posterior = posterior_table(load_snapshot(folder)), sampler.posterior
    visited = np.flatnonzero(posterior.visits)
    assert table.index.tolist() == visited.tolist()
    np.testing.assert_array_equal(table.alpha, posterior.alpha[visited])
    np.testing.assert_array_equal(table.beta, posterior.beta[visited])
    np.testing.assert_array_equal(table.pass_rate, posterior.posterior_mean[visited])
    np.testing.assert_array_equal(table.visits, posterior.visits[visited])
    np.testing.assert_array_equal(table.last_step, posterior.last_update[visited])


def test_a_snapshot_that_does_not_say_which_rows_it_is_about_needs_their_names(sampler, tmp_path):
    save_snapshot(tmp_path, sampler)
    snapshot = load_snapshot(tmp_path)
    with refused(SnapshotMismatchError, names=["sample_key"], offers=["sample_id"]):
        posterior_table(snapshot)
    assert len(posterior_table(snapshot, sample_id=scored(snapshot, range(10)))) > 0


def test_two_rows_of_one_key_are_damage(sampler, tmp_path):
    save_snapshot(tmp_path, sampler, sample_key=np.zeros(10, dtype=np.int64))
    with refused(SnapshotCorruptError, names=["sample_id"]):
        posterior_table(load_snapshot(tmp_path))


def test_the_facts_are_those_that_the_snapshot_has(snapshot):
    from trl_vade.version import __version__

    assert posterior_table(snapshot).metadata == {
        "format_version": 1,
        "package_version": __version__,
        "global_step": 40,
        "generation_batches": 6,
        "num_samples": 10,
        "rollouts": 640,
        "base_model": "Qwen/Qwen2.5-VL-3B-Instruct",
        "dataset_fingerprint": "f" * 64,
        "success_reward": "is_right",
        "success_threshold": 0.5,
        "num_generations": 8,
        "sampler": "thompson",
        "information_gain": "asymmetric",
        "prior": "flat",
        "decay_sampled": 0.2,
        "decay_unsampled": 0.999,
        "signal_aware_decay": True,
        "seed": 7,
    }


def test_facts_that_are_given_stand_and_those_of_the_counts_come_from_the_snapshot(snapshot):
    given = {"sampler": "mopps", "global_step": 1, "num_samples": 1, "temperature": None}
    facts = posterior_table(snapshot, facts=given).metadata
    assert {name: facts[name] for name in given} == given | {"global_step": 40, "num_samples": 10}
    assert "success_reward" not in facts


def test_the_base_model_of_a_snapshot_is_an_id_and_the_same_in_every_folder(snapshot, tmp_path, monkeypatch):
    def base_model(name):
        return facts_of(replace(snapshot, metadata={"base_model": name})).get("base_model")

    assert [base_model(name) for name in (None, "/somewhere/mine", "../mine", 7)] == [None] * 4
    monkeypatch.chdir(tmp_path)
    (tmp_path / "you" / "model").mkdir(parents=True)
    assert hub_id("you/model") is None
    assert [base_model(name) for name in ("gpt2", "you/model")] == ["gpt2", "you/model"]


# ------------------------------------------------------------------------------------------------------- the file


@st.composite
def tables(draw):
    size = draw(st.integers(0, 12))
    counts = st.floats(0, 2**53)
    alpha, beta = (np.array(draw(st.lists(counts, min_size=size, max_size=size)), dtype=np.float64) for _ in "ab")
    ids = draw(st.lists(st.text(max_size=8), min_size=size, max_size=size, unique=True))
    index = draw(st.lists(st.integers(0, 99), min_size=size, max_size=size, unique=True))
    task = draw(st.none() | st.lists(st.none() | st.text(max_size=4), min_size=size, max_size=size))
    some = st.lists(st.integers(1, 50), min_size=size, max_size=size)
    values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    return PosteriorTable(
        sample_id=ids,
        index=np.array(index, dtype=np.int64),
        task=task,
        alpha=alpha,
        beta=beta,
        visits=np.array(draw(some), dtype=np.int64),
        pass_rate=(alpha + 1) / (alpha + beta + 2),
        last_step=np.full(size, 50, dtype=np.int64),
        metadata=draw(st.dictionaries(st.text(), values | st.lists(values), max_size=3))
        | {"format_version": 1, "global_step": 9, "generation_batches": 50, "num_samples": 100},
    )


@settings(max_examples=20)
@given(tables())
def test_what_is_written_is_read(tmp_path_factory, table):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    write_table(table, path)
    first = path.read_bytes()
    read = read_table(path)
    own = ("source", "revision", "rows_sha256")  # which the reader and the writer set themselves
    same(read, replace(table, metadata={key: value for key, value in table.metadata.items() if key not in own}))
    write_table(read, path)
    assert path.read_bytes() == first


@pytest.fixture
def written(snapshot, tmp_path):
    """A function that writes the table of `snapshot` with columns and metadata changed by hand; returns the path."""

    def write(metadata=None, drop=(), **columns):
        path = tmp_path / "hand made.parquet"
        task = scored(snapshot, ["math"] * 10) if "task" in columns else None
        write_table(posterior_table(snapshot, task=task), path)
        content = pq.read_table(path)
        for name, values in columns.items():
            content = content.set_column(content.column_names.index(name), name, values)
        facts = json.loads(content.schema.metadata[METADATA_KEY])
        text = metadata if isinstance(metadata, bytes) else encode_document(facts | (metadata or {}))
        pq.write_table(content.drop_columns(list(drop)).replace_schema_metadata({METADATA_KEY: text}), path)
        return path

    return write


IMPOSSIBLE = [  # the first value of a column, and what the refusal names
    *(("alpha", value, "alpha") for value in (-1.0, float("inf"))),
    *(("beta", value, "beta") for value in (float("nan"), 1e300)),
    *(("visits", value, "visits") for value in (0, 2**60, 7)),
    *((name, "another", "metadata") for name in ("sample_id", "task")),
    ("pass_rate", float("nan"), "pass_rate"),
    *(("index", value, "index") for value in (-1, 10)),
    ("last_step", 7, "last_step"),
    ("alpha", None, "alpha has 1 nulls"),
    ("sample_id", None, "sample_id has 1 nulls"),
]


def test_what_no_run_can_have_left_is_refused_by_name(written):
    sound = pq.read_table(written())
    columns = {name: sound[name].to_pylist() for name in sound.column_names} | {"task": ["math"] * len(sound)}
    changes = [(name, [value, *columns[name][1:]], rule) for name, value, rule in IMPOSSIBLE]
    changes += [(name, [columns[name][1], *columns[name][1:]], name) for name in ("sample_id", "index")]
    changes.append(("pass_rate", [columns["pass_rate"][0] + 1e-5, *columns["pass_rate"][1:]], "pass_rate"))
    changes.append(("alpha", list(map(str, columns["alpha"])), "alpha has string"))
    changes.append(("visits", list(map(float, columns["visits"])), "visits has double"))
    for name, values, rule in changes:
        with refused(SnapshotCorruptError, names=["hand made.parquet", rule]):
            read_table(written(**{name: pa.array(values)}))


def test_a_column_that_is_missing_is_refused(written):
    for name in ("sample_id", "index", "alpha", "beta", "visits", "pass_rate", "last_step"):
        with refused(SnapshotCorruptError, names=[f"column {name}"]):
            read_table(written(drop=[name]))


def test_a_description_that_no_run_can_have_written_is_refused(written):
    for metadata, rule in (
        (b"\xff", "trl_vade"),
        (b'{"format_version": NaN}', "NaN"),
        (b"[" * 100_000, "damaged"),
        (b"[1]", "a list"),
        (b'{"format_version": 1, "global_step": 40}', "document_sha256"),
        *(({"format_version": value}, "format_version") for value in (True, 0)),
        *(({"global_step": value}, "global_step") for value in ("100", 10**12 + 1)),
        *(({"generation_batches": value}, "generation_batches") for value in (-1, 10**30)),
        ({"num_samples": 0}, "num_samples is 0"),
    ):
        with refused(SnapshotCorruptError, names=["hand made.parquet", rule]):
            read_table(written(metadata))


def test_a_newer_release_is_asked_for_and_a_private_place_is_not_written(written, snapshot, tmp_path):
    with refused(SnapshotMismatchError, names=[2, 1], offers=["Upgrade"]):
        read_table(written({"format_version": 2}, drop=["index"]))
    table = posterior_table(snapshot)
    write_table(replace(table, metadata={**table.metadata, "source": "/home/me", "revision": "abc"}), tmp_path / "t")
    same(read_table(tmp_path / "t"), table)
    assert [int(name, 16) for name in table.sample_id] == [(row - 5) % 2**64 for row in table.index.tolist()]


def test_a_file_that_was_cut_short_is_refused(written):
    path = written()
    content = path.read_bytes()
    for keep in (0, 4, 500, -1):
        path.write_bytes(content[:keep])
        with refused(SnapshotCorruptError, names=["hand made.parquet", "Parquet"]):
            read_table(path)


def test_a_byte_that_was_damaged_on_the_way_never_gives_other_rows_or_facts(snapshot, tmp_path):
    """What is damaged is refused, or was of no account, or has lost all facts: as if another tool had written it.

    The fuzz of tests/integration has no Parquet.
    """
    path = tmp_path / "posterior.parquet"
    write_table(posterior_table(snapshot, task=scored(snapshot, [None, *"aabbbabab"])), path)
    content, whole = path.read_bytes(), read_table(path)
    num_refused = 0
    for place in range(4, len(content), 23):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            read = read_table(path)
        except (SnapshotCorruptError, SnapshotMismatchError):  # the latter where the version itself was damaged
            num_refused += 1
        else:
            same(read, whole if read.metadata else replace(whole, metadata={}))
    assert num_refused > 0.5 * (len(content) - 4) / 23


def test_a_table_that_another_tool_wrote_anew_keeps_its_counts(snapshot, tmp_path):
    from datasets import load_dataset

    table = posterior_table(snapshot, task=scored(snapshot, [None, *"abcdefghi"]))
    write_table(table, tmp_path / "ours.parquet")
    rows = load_dataset("parquet", data_files=str(tmp_path / "ours.parquet"), cache_dir=str(tmp_path), split="train")
    rows.to_parquet(tmp_path / "theirs.parquet")
    same(read_table(tmp_path / "theirs.parquet"), replace(table, metadata={}))


def test_what_could_not_be_read_again_is_not_written(snapshot, tmp_path):
    table = posterior_table(snapshot)
    with refused(SnapshotCorruptError, names=["alpha"]):
        write_table(replace(table, alpha=table.alpha - 100), tmp_path / "t")
    for value in (float("nan"), object()):
        with refused(ConfigurationError, names=["JSON"]):
            write_table(replace(table, metadata={**table.metadata, "note": value}), tmp_path / "t")
    assert list(tmp_path.glob("t*")) == []
