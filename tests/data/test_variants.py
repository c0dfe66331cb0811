"""Variants as rows: what ties them to their originals, and rows that do not fit together."""

from datasets import Dataset

from tests.support.refusals import refused
from trl_vade.data.variants import originals_of, read_variants, with_known_originals
from trl_vade.errors import ConfigurationError


def prompt(text):
    return [{"role": "user", "content": text}]


def make_rows(**changes):
    columns = {
        "id": ["a", "a/hint-1", "b", "b/hint-1"],
        "of": ["a", "a", "b", "b"],
        "kind": ["original", "hint-1", "original", "hint-1"],
        "prompt": [prompt(text) for text in ("2+3?", "2+3? 2, 3, 4", "7*8?", "7*8? 7*7=49")],
        "answer": ["5", "5", "56", "56"],
    }
    columns = {name: column for name, column in (columns | changes).items() if column is not None}
    return Dataset.from_dict(columns)


def test_rows_whose_originals_are_there_stay_as_they_are():
    rows = make_rows()
    assert with_known_originals(rows, "of") is rows
    of, kinds = read_variants(rows, "of")
    assert of.tolist() == [0, 0, 2, 2]
    assert kinds == ["original", "hint-1"] * 2


def test_variants_of_a_row_that_is_not_there_are_left_out_and_told(caplog):
    rows = with_known_originals(make_rows().select([0, 1, 3]), "of")
    assert rows["id"] == ["a", "a/hint-1"]
    assert "1 of 3 rows" in caplog.text


def test_only_originals_are_evaluated():
    assert originals_of(make_rows(), "of")["id"] == ["a", "b"]
    plain = make_rows(of=None)
    assert originals_of(plain, "of") is plain


def test_rows_that_do_not_fit_together_are_refused():
    nested = {"of": [[{"kind": "text", "prompt": prompt("?")}], [], [], []]}
    for changes in (*({name: None} for name in ("id", "of", "kind")), {"of": [1, 1, 2, 2]}, nested):
        with refused(ConfigurationError, ["vade_variants='of'"]):
            with_known_originals(make_rows(**changes), "of")
    for changes, names in (
        ({"id": ["a", "a", "b", "b/hint-1"]}, ["'id'", "vade_variants"]),
        ({"answer": ["5", "6", "56", "56"]}, ["1 variants", "'answer'", "a/hint-1", "6", "5"]),
        ({"prompt": [prompt("2+3?")] * 2 + [prompt("7*8?"), prompt("8*7?")]}, ["1 variants", "a/hint-1"]),
    ):
        with refused(ConfigurationError, names):
            read_variants(make_rows(**changes), "of")
