"""Posteriors as files of the user's choice; the rest of this module is in test_cli_posterior.py."""

import csv
import json

import pytest

from tests.support.posteriors import make_table
from tests.support.refusals import refused
from trl_vade.cli.posterior.files import check_ending, export_table
from trl_vade.errors import ConfigurationError

AWKWARD = ['a "quoted", name', "two\nlines", "\r", "Größe 木", "=1+1", " ", "\tx", "1=1", "@SUM(A1)", "-"]


def escaped(name):
    """The name as text, where a spreadsheet would run it as a formula."""
    return f"'{name}" if name[0] in "=+-@\t\r" else name


@pytest.fixture
def table():
    return make_table(dict.fromkeys(AWKWARD, (1.5, 0.1)), task=["@algebra", None, *"wxyz", "-1", "v", "+1", "u"])


def test_any_name_survives_a_csv_file(table, tmp_path):
    export_table(table, tmp_path / "table.csv")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [record["sample_id"] for record in records] == [escaped(name) for name in AWKWARD]
    assert [record["task"] for record in records] == ["'@algebra", "", *"wxyz", "'-1", "v", "'+1", "u"]
    assert [float(record["pass_rate"]) for record in records] == table.pass_rate.tolist()


def test_any_name_survives_a_file_of_json_lines(table, tmp_path):
    export_table(table, tmp_path / "table.jsonl")
    lines = (tmp_path / "table.jsonl").read_bytes().decode().split("\n")
    records = [json.loads(line) for line in lines[:-1]]
    assert [record["sample_id"] for record in records] == AWKWARD
    assert records[1]["task"] is None
    assert [record["alpha"] for record in records] == table.alpha.tolist()


def test_an_export_replaces_the_file_that_is_there(table, tmp_path):
    path = tmp_path / "folder" / "table.JSONL"
    export_table(make_table({"old": (0, 0)}), path)
    export_table(table, path)
    assert len(path.read_text(encoding="utf-8").splitlines()) >= len(AWKWARD)
    assert "old" not in path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["table", "table.json", "table.csv.gz", ".csv"])
def test_other_endings_are_refused(table, tmp_path, name):
    with refused(ConfigurationError, [tmp_path / name], [".parquet", ".csv", ".jsonl"]):
        export_table(table, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    assert check_ending(tmp_path / "table.CSV") == ".csv"
