"""Posteriors as files of the user's choice; the commands are in test_commands.py."""

import json

import pytest

from tests.support.posteriors import make_table
from tests.support.refusals import refused
from trl_vade.cli.posterior.files import check_ending, export_table
from trl_vade.errors import ConfigurationError

AWKWARD = ['a "quoted", name', "two\nlines", "\r", "Größe 木", " ", "\tx"]


def test_any_name_survives_a_file_of_json_lines_which_replaces_the_one_that_is_there(tmp_path):
    path = tmp_path / "folder" / "table.JSONL"
    export_table(make_table({"old": (0, 0)}), path)
    table = make_table(dict.fromkeys(AWKWARD, (1.5, 0.1)), task=["algebra", None, *"wxyz"])
    export_table(table, path)
    records = [json.loads(line) for line in path.read_bytes().decode().split("\n")[:-1]]
    assert [record["sample_id"] for record in records] == AWKWARD
    assert records[1]["task"] is None
    assert [record["alpha"] for record in records] == table.alpha.tolist()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["table", "table.json", "table.csv", "table.jsonl.gz", ".jsonl"])
def test_other_endings_are_refused(tmp_path, name):
    with refused(ConfigurationError, [tmp_path / name], [".parquet", ".jsonl"]):
        export_table(make_table({"a": (1, 1)}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    assert check_ending(tmp_path / "table.PARQUET") == ".parquet"
