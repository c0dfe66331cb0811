"""Files of the sources: planned, loaded from the Hub, checked before a row is read."""

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Features, Image, List, Value

from scripts.mixture import fetch
from scripts.mixture.fetch import check_schema, kind_of, local_files, open_stream, planned_bytes
from scripts.mixture.sources import SOURCES, SourceSchemaError
from tests.support.mixture_stand_ins import (
    CHART_QA,
    ONE_VISION,
    SCIENCE_QA,
    make_mirror,
    make_rows,
    put_on_hub,
    write_card,
    write_files,
)
from trl_vade.errors import ConfigurationError
from trl_vade.hub.failures import HTTP_ERROR

TEXT = Value("string")


def opened(source, mirror):
    return open_stream(source, local_files([source], mirror)[source.task])


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    make_mirror(folder, dict.fromkeys(SOURCES, 3))
    return folder


@pytest.mark.parametrize("task", list(SOURCES))
def test_each_configuration_opens_from_a_local_copy_whatever_characters_its_name_has(mirror, task):
    rows = list(opened(SOURCES[task], mirror))
    assert len(rows) == 3 + 12 + 1
    assert set(rows[0]) == set(SOURCES[task].columns)
    assert isinstance(rows[0]["image"]["bytes"], bytes)
    if SOURCES[task].reader == "conversations":  # each configuration has its own rows, and not those of another
        assert {turn["from"] for row in rows for turn in row["conversations"]} == {"human", "gpt"}


def test_the_configurations_of_one_repository_are_told_apart(mirror):
    first = {
        task: next(iter(opened(source, mirror)))["image"]["bytes"]
        for task, source in SOURCES.items()
        if source.reader == "conversations"
    }
    assert len(set(first.values())) == len(first) == 9


def a_mirror_with(folder, task, features):
    """A copy of the source of `task` whose rows have these features."""
    source = SOURCES[task]
    rows = make_rows(task, 1, [])[0]
    part = source.config or "data"
    for row in rows:
        row |= {name: str(row[name]) for name, feature in features.items() if feature == TEXT} | {"new": 1}
    rows = [{name: row[name] for name in features} for row in rows]
    write_files(folder / source.repo / part, features, rows)
    write_card(folder / source.repo, {source.config or "default": {"train": f"{part}/train-*"}})
    return folder


CHANGED = [
    ("geo170k", {k: v for k, v in ONE_VISION.items() if k != "conversations"}, "conversations", "is not there"),
    ("tabmwp", {**ONE_VISION, "conversations": TEXT}, "conversations", "type string"),
    ("geo3k", {**ONE_VISION, "image": TEXT}, "image", "type string"),
    ("chartqa", {**CHART_QA, "label": TEXT}, "label", "type string; expected: list<string>"),
    ("scienceqa", {**SCIENCE_QA, "answer": TEXT}, "answer", "type string; expected: int"),
    ("scienceqa", {k: v for k, v in SCIENCE_QA.items() if k != "hint"}, "hint", "is not there"),
]


@pytest.mark.parametrize(("task", "features", "column", "found"), CHANGED)
def test_a_source_whose_schema_changed_is_refused_by_source_column_types_and_revision(
    tmp_path, task, features, column, found
):
    mirror = a_mirror_with(tmp_path, task, features)
    with pytest.raises(SourceSchemaError) as refusal:
        opened(SOURCES[task], mirror)
    source, message = SOURCES[task], str(refusal.value)
    for part in (source.name, source.revision, f"column {column!r}", found, f"expected: {source.columns[column]}"):
        assert part in message


def test_further_columns_are_no_change(tmp_path):
    mirror = a_mirror_with(tmp_path, "ai2d", {**ONE_VISION, "new": Value("int64")})
    assert set(next(iter(opened(SOURCES["ai2d"], mirror)))) == {"image", "conversations"}


def test_the_width_of_integers_and_text_offsets_is_no_change():
    wide = {**SCIENCE_QA, "answer": Value("int64"), "question": Value("large_string")}
    check_schema(SOURCES["scienceqa"], Features(wide))
    with pytest.raises(SourceSchemaError, match=r"'answer' is of the type float32"):
        check_schema(SOURCES["scienceqa"], Features({**SCIENCE_QA, "answer": Value("float32")}))


def test_the_kinds_of_columns():
    assert kind_of(Image()) == "image"
    assert kind_of(List({"value": TEXT, "from": TEXT})) == "list<{from: string, value: string}>"
    assert kind_of(ClassLabel(names=["a"])) == "ClassLabel"
    assert kind_of(Value("bool")) == "bool"


def test_a_configuration_that_is_not_there_is_refused_by_name_and_revision(mirror):
    source = replace(SOURCES["geos"], config="GEOS(MathV361K)")
    with pytest.raises(SourceSchemaError, match=r"GEOS\(MathV361K\), revision 7ca5e5bf"):
        local_files([source], mirror)


def test_a_file_that_is_missing_is_noticed_by_the_names_of_the_others(tmp_path):
    make_mirror(tmp_path, {"geos": 2})
    next((tmp_path / SOURCES["geos"].repo).rglob("*.parquet")).unlink()
    with pytest.raises(SourceSchemaError, match=r"has 1 files .*expected: 2"):
        local_files([SOURCES["geos"]], tmp_path)


def test_a_repository_that_the_mirror_lacks_is_refused_with_the_command_that_brings_it(tmp_path):
    with pytest.raises(ConfigurationError, match=r"hf download HuggingFaceM4/ChartQA .* --revision b605b6e0"):
        local_files([SOURCES["chartqa"]], tmp_path)


def test_files_without_the_metadata_of_datasets_are_read_all_the_same(tmp_path):
    make_mirror(tmp_path, {"geos": 2})
    files = local_files([SOURCES["geos"]], tmp_path)["geos"]
    for file in files:
        pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    assert isinstance(next(iter(open_stream(SOURCES["geos"], files)))["image"]["bytes"], bytes)


SOME = [SOURCES["geos"], SOURCES["tabmwp"], SOURCES["scienceqa"]]


@pytest.fixture
def at_the_hub(hub, tmp_path):
    """The loopback Hub with three sources at their pinned revisions, of one configuration more than is asked for."""
    make_mirror(tmp_path / "copies", {source.task: 3 for source in [*SOME, SOURCES["geo3k"]]})
    put_on_hub(hub, tmp_path / "copies", SOME)
    return hub


def loaded(hub):
    return [request for request in hub.requests if request.startswith("GET") and ".parquet" in request]


def test_the_plan_counts_bytes_and_an_interrupted_download_goes_on_where_it_was(at_the_hub, tmp_path):
    planned = planned_bytes(SOME)
    copies = local_files(SOME, tmp_path / "copies")
    sizes = [sum(file.stat().st_size for file in copies[source.task]) for source in SOME]
    assert planned == [(size, size) for size in sizes]
    assert loaded(at_the_hub) == []
    local_files(SOME[:1])
    assert planned_bytes(SOME) == [(sizes[0], 0), *planned[1:]]
    files = local_files(SOME)
    assert len(loaded(at_the_hub)) == 6  # two files of each source, none of them twice, and none of geo3k
    for source in SOME:
        assert list(opened(source, tmp_path / "copies")) == list(open_stream(source, files[source.task]))


@pytest.fixture
def waited(monkeypatch):
    """The seconds that are waited for before another try."""
    seconds = []
    monkeypatch.setattr(fetch, "time", SimpleNamespace(sleep=seconds.append))
    return seconds


@pytest.mark.parametrize("status", [503, 429])
def test_a_fault_that_passes_costs_time_and_one_that_stays_ends_with_the_repository(at_the_hub, status, waited):
    at_the_hub.fault("GET .*parquet", times=1, status=status)
    assert len(local_files(SOME[:1])["geos"]) == 2
    waited.clear()  # the client itself waits in some cases
    at_the_hub.fault("GET .*parquet", times=10**6, status=status)
    with pytest.raises(OSError, match=rf"{SOME[2].repo}, revision .*{status}"):
        local_files(SOME[2:])
    assert waited == list(fetch.WAITS[:-1])


def test_a_connection_that_is_cut_again_and_again_ends_with_the_repository(waited, monkeypatch):
    def cut(*arguments, **settings):
        raise HTTP_ERROR("Server disconnected without sending a response.")

    monkeypatch.setattr("huggingface_hub.snapshot_download", cut)
    with pytest.raises(OSError, match=f"{SOME[0].repo}, revision .*Server disconnected"):
        local_files(SOME[:1])
    assert waited == list(fetch.WAITS[:-1])


def test_a_repository_that_is_not_there_is_not_asked_for_again(at_the_hub, waited):
    with pytest.raises(OSError, match=r"HuggingFaceM4/ChartQA, revision .*404"):
        local_files([SOURCES["chartqa"]])
    assert waited == []


def test_the_stand_ins_have_the_types_of_the_cards():
    """As they were read: label is `list: string`, answer int8, images structs of bytes and path."""
    assert CHART_QA.arrow_schema.field("label").type == pa.list_(pa.string())
    assert SCIENCE_QA.arrow_schema.field("answer").type == pa.int8()
    assert [field.name for field in ONE_VISION.arrow_schema] == ["id", "image", "conversations", "data_source"]
