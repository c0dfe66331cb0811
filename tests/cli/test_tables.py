"""Tables on the terminal, as a pipe gets them: 80 columns, no colours."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_vade.cli.tables import print_columns, print_table


def test_a_table_of_names_and_values_has_a_line_for_each(capsys):
    print_table("A title", [("name", "1"), ("longer name", "2")])
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert ["A", "title"] in lines
    assert ["name", "1"] in lines
    assert ["longer", "name", "2"] in lines


def test_columns_stand_under_their_heads_and_numbers_to_the_right(capsys):
    print_columns("Rows", ["row", "visits"], [["a", "1"], ["b", "12"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Rows"
    head, one, twelve = (next(line for line in lines if sign in line) for sign in ("visits", "a ", "b "))
    assert len(head.rstrip()) == len(one.rstrip()) == len(twelve.rstrip())


def test_a_long_name_is_folded_and_not_cut_short(capsys):
    name = "0123456789" * 12
    print_columns("Rows", ["row", "visits"], [[name, "1"]])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "".join("".join(line.split()[:1]) for line in out.splitlines() if "0" in line) == name


def test_a_narrow_terminal_cuts_nothing_off(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    row = ["question-" * 3, "chart", "123456.789", "0.556", "12345678"]
    print_columns("Rows", ["row", "task", "alpha", "pass\nrate", "visits"], [row], text=2)
    print_table("Values", [("generation_batches", "0.556 (median 0.123)")])
    out = capsys.readouterr().out
    assert "…" not in out
    lines = [line.replace("│", " ").split() for line in out.splitlines()]
    assert ["question-questio", "chart", *row[2:]] in lines
    assert {"rate", "task", "visits", "(median", "0.556", "0.123)"} <= {word for line in lines for word in line}


@given(
    st.lists(st.tuples(*[st.text(max_size=40)] * 2, *[st.integers(0, 10**12).map(str)] * 3), min_size=1, max_size=4),
    st.integers(1, 100),
)
def test_no_number_loses_a_digit_whatever_the_width(rows, width):
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("COLUMNS", str(width))
        print_columns("Rows", ["row", "task", "a", "b", "c"], rows, text=2)
    lines = [line.split()[-3:] for line in out.getvalue().splitlines()]
    assert [line for line in lines if line in [list(row[2:]) for row in rows]] == [list(row[2:]) for row in rows]


def test_a_sign_that_the_terminal_does_not_have_is_escaped_and_the_columns_stay_straight():
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="ascii", write_through=True)
    with contextlib.redirect_stdout(terminal):
        print_columns("Rows", ["row", "visits"], [["資料", "1"], ["b", "12"]])
        print_table("Rows", [("資料", "ü")])
    lines = written.getvalue().decode("ascii").splitlines()
    one, twelve = (next(line for line in lines if sign in line) for sign in (r"\u8cc7\u6599 ", "b "))
    assert len(one) == len(twelve)
    assert any(r"\xfc" in line for line in lines)


def test_a_name_that_looks_like_markup_is_printed_as_it_is_and_a_terminal_obeys_nothing(capsys):
    for name in ("[bold]b[/bold]", ":smile:", "[/]"):
        print_columns("Rows", ["row"], [[name]])
        print_table("Rows", [(name, name)])
        assert capsys.readouterr().out.count(name) == 3
    print_columns("Rows", ["row"], [["\x1b[2Jgone\r\nand\tback"]])
    out = capsys.readouterr().out
    assert r"\x1b[2Jgone\r\nand\tback" in out
    assert "\x1b" not in out
