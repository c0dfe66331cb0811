"""The table of sources, and what is refused before a row is read."""

import re
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from datasets import ClassLabel, Features, Image, List, Value

from scripts.mixture.sources import SOURCES, check_schema, kind_of, open_stream, state_of_mirror
from tests.support.mixture_stand_ins import (
    CHART_QA,
    ONE_VISION,
    SCIENCE_QA,
    make_mirror,
    make_rows,
    write_card,
    write_files,
)
from trl_vade.errors import ConfigurationError, SourceSchemaError

TEXT = Value("string")


def test_the_mixture_has_the_sizes_of_table_3():
    assert sum(source.count for source in SOURCES.values()) == 9471
    domains = Counter()
    for source in SOURCES.values():
        domains[source.domain] += source.count
    assert domains == {"math": 5670, "chart": 2476, "science": 1325}


def test_each_source_is_pinned_to_a_commit():
    assert all(re.fullmatch(r"[0-9a-f]{40}", source.revision) for source in SOURCES.values())
    assert len({source.name for source in SOURCES.values()}) == len(SOURCES) == 11
    assert SOURCES["chartqa"].name == "ChartQA"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    make_mirror(folder, dict.fromkeys(SOURCES, 3))
    return folder


@pytest.mark.parametrize("task", list(SOURCES))
def test_each_configuration_opens_from_a_local_copy_whatever_characters_its_name_has(mirror, task):
    rows = list(open_stream(SOURCES[task], mirror))
    assert len(rows) == 3 + 12 + 1
    assert set(rows[0]) == set(SOURCES[task].columns)
    assert isinstance(rows[0]["image"]["bytes"], bytes)
    if SOURCES[task].reader == "conversations":  # each configuration has its own rows, and not those of another
        assert {turn["from"] for row in rows for turn in row["conversations"]} == {"human", "gpt"}


def test_the_configurations_of_one_repository_are_told_apart(mirror):
    first = {
        task: next(iter(open_stream(source, mirror)))["image"]["bytes"]
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
        open_stream(SOURCES[task], mirror)
    source, message = SOURCES[task], str(refusal.value)
    for part in (source.name, source.revision, f"column {column!r}", found, f"expected: {source.columns[column]}"):
        assert part in message


def test_further_columns_are_no_change(tmp_path):
    mirror = a_mirror_with(tmp_path, "ai2d", {**ONE_VISION, "new": Value("int64")})
    assert set(next(iter(open_stream(SOURCES["ai2d"], mirror)))) == {"image", "conversations"}


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
        open_stream(source, mirror)


def test_a_repository_that_the_mirror_lacks_is_refused_with_the_command_that_brings_it(tmp_path):
    with pytest.raises(ConfigurationError, match=r"hf download HuggingFaceM4/ChartQA .* --revision b605b6e0"):
        open_stream(SOURCES["chartqa"], tmp_path)


def test_a_changed_file_of_the_mirror_is_noticed(tmp_path):
    make_mirror(tmp_path, {"geos": 2})
    source = SOURCES["geos"]
    before = state_of_mirror(source, tmp_path)
    assert before == state_of_mirror(source, tmp_path) != []
    file = next((tmp_path / source.repo).rglob("*.parquet"))
    file.write_bytes(file.read_bytes() + b"x")
    assert state_of_mirror(source, tmp_path) != before
    assert state_of_mirror(source, None) == []


def test_the_stand_ins_have_the_types_of_the_cards():
    """As they were read: label is `list: string`, answer int8, images structs of bytes and path."""
    assert CHART_QA.arrow_schema.field("label").type == pa.list_(pa.string())
    assert SCIENCE_QA.arrow_schema.field("answer").type == pa.int8()
    assert [field.name for field in ONE_VISION.arrow_schema] == ["id", "image", "conversations", "data_source"]
