"""Tables on the terminal, as a pipe gets them: 80 columns, no colours."""

import pytest

from trl_vade.tables import print_columns, print_table


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


@pytest.mark.parametrize("name", ["[bold]b[/bold]", ":smile:", "[/]"])
def test_a_name_that_looks_like_markup_is_printed_as_it_is(capsys, name):
    print_columns("Rows", ["row"], [[name]])
    print_table("Rows", [(name, name)])
    assert capsys.readouterr().out.count(name) == 3


def test_a_terminal_obeys_nothing_that_is_printed(capsys):
    print_columns("Rows", ["row"], [["\x1b[2Jgone\r\nand\tback"]])
    out = capsys.readouterr().out
    assert r"\x1b[2Jgone\r\nand\tback" in out
    assert "\x1b" not in out
