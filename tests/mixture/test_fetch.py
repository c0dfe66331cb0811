"""Files of the sources: planned, loaded from the Hub, checked before a row is read."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Features, Image, List, Value

from scripts.mixture.fetch import check_schema, kind_of, local_files, open_stream, planned_bytes
from scripts.mixture.sources import SOURCES, SourceSchemaError
from tests.support.mixture_stand_ins import CHART_QA, ONE_VISION, SCIENCE_QA, make_mirror, put_on_hub
from trl_vade.errors import ConfigurationError

TEXT = Value("string")


def opened(source, mirror):
    return open_stream(source, local_files([source], mirror)[source.task])


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    make_mirror(folder, dict.fromkeys(SOURCES, 3))
    return folder


def test_each_configuration_opens_from_a_local_copy_with_its_own_rows(mirror):
    """Whatever characters its name has: nine lie in one repository."""
    images = set()
    for source in SOURCES.values():
        rows = list(opened(source, mirror))
        assert len(rows) == 3 + 12 + 1
        assert set(rows[0]) == set(source.columns)
        images.add(rows[0]["image"]["bytes"])
        if source.reader == "conversations":
            assert {turn["from"] for row in rows for turn in row["conversations"]} == {"human", "gpt"}
    assert len(images) == len(SOURCES)


CHANGED = [
    ("geo170k", {name: ONE_VISION[name] for name in ("id", "image")}, "conversations", "is not there"),
    ("tabmwp", {**ONE_VISION, "conversations": TEXT}, "conversations", "type string"),
    ("geo3k", {**ONE_VISION, "image": TEXT}, "image", "type string"),
    ("chartqa", {**CHART_QA, "label": TEXT}, "label", "type string; expected: list<string>"),
    ("scienceqa", {**SCIENCE_QA, "answer": TEXT}, "answer", "type string; expected: int"),
    ("scienceqa", {**SCIENCE_QA, "answer": Value("float32")}, "answer", "type float32"),
]


def test_a_source_whose_schema_changed_is_refused_and_one_that_only_grew_is_not():
    for task, features, column, found in CHANGED:
        source = SOURCES[task]
        with pytest.raises(SourceSchemaError) as refusal:
            check_schema(source, Features(features))
        for part in (source.name, source.revision, f"column {column!r}", found, f"expected: {source.columns[column]}"):
            assert part in str(refusal.value)
    wide = {**SCIENCE_QA, "answer": Value("int64"), "question": Value("large_string"), "new": Value("int64")}
    check_schema(SOURCES["scienceqa"], Features(wide))
    assert kind_of(Image()) == "image"
    assert kind_of(List({"value": TEXT, "from": TEXT})) == "list<{from: string, value: string}>"
    assert (kind_of(ClassLabel(names=["a"])), kind_of(Value("bool"))) == ("ClassLabel", "bool")


def test_what_a_mirror_lacks_is_named(mirror, tmp_path):
    with pytest.raises(SourceSchemaError, match=r"GEOS\(MathV361K\), revision 7ca5e5bf"):
        local_files([replace(SOURCES["geos"], config="GEOS(MathV361K)")], mirror)
    make_mirror(tmp_path, {"geos": 2})
    files = local_files([SOURCES["geos"]], tmp_path)["geos"]
    for file in files:  # without the metadata of datasets they are read all the same
        pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    assert isinstance(next(iter(open_stream(SOURCES["geos"], files)))["image"]["bytes"], bytes)
    files[0].unlink()
    with pytest.raises(SourceSchemaError, match=r"has 1 files .*expected: 2"):
        local_files([SOURCES["geos"]], tmp_path)
    with pytest.raises(ConfigurationError, match=r"hf download HuggingFaceM4/ChartQA .* --revision b605b6e0"):
        local_files([SOURCES["chartqa"]], tmp_path)


SOME = [SOURCES["geos"], SOURCES["tabmwp"], SOURCES["scienceqa"]]


@pytest.fixture
def at_the_hub(hub, tmp_path):
    """The loopback Hub with three sources at their pinned revisions, of one configuration more than is asked for."""
    make_mirror(tmp_path / "copies", {source.task: 3 for source in [*SOME, SOURCES["geo3k"]]})
    put_on_hub(hub, tmp_path / "copies", SOME)
    return hub


def test_the_plan_counts_bytes_and_an_interrupted_download_goes_on_where_it_was(at_the_hub, tmp_path):
    def loaded():
        return [request for request in at_the_hub.requests if request.startswith("GET") and ".parquet" in request]

    planned, copies = planned_bytes(SOME), local_files(SOME, tmp_path / "copies")
    sizes = [sum(file.stat().st_size for file in copies[source.task]) for source in SOME]
    assert planned == [(size, size) for size in sizes]
    assert loaded() == []
    local_files(SOME[:1])
    assert planned_bytes(SOME) == [(sizes[0], 0), *planned[1:]]
    files = local_files(SOME)
    assert len(loaded()) == 6  # two files of each source, none of them twice, and none of geo3k
    for source in SOME:
        assert list(opened(source, tmp_path / "copies")) == list(open_stream(source, files[source.task]))


def test_what_is_not_there_and_a_fault_of_the_hub_end_with_the_repository(at_the_hub):
    at_the_hub.fault("GET .*parquet", times=10**6, status=503)
    for source, status in ((SOURCES["chartqa"], 404), (SOME[2], 503)):
        with pytest.raises(OSError, match=f"{source.repo}, revision .*{status}.*are kept"):
            local_files([source])
