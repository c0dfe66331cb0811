"""Tables on the terminal, as a pipe gets them: 80 columns, no colours."""

import pytest

from trl_vade.cli.tables import print_columns, print_table


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_narrow_terminal_folds_names_and_numbers_and_cuts_nothing_off(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    row = ["0123456789" * 12, "chart", "123456.789", "0.556", "12345678"]
    print_columns("Rows", ["row", "task", "alpha", "rate", "visits"], [row], text=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    rule = next(place for place, line in enumerate(lines) if "───" in line)
    last = [line for line in lines[rule + 1 :] if line.strip()]
    starts = [place for place in range(len(last[0])) if last[0][place] != " " and " " in last[0][place - 1 : place]]
    columns = [slice(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert ["".join(line[column].strip() for line in last) for column in columns] == row


def test_data_is_printed_as_it_is_and_is_no_markup(capsys):
    for name in ("[bold]b[/bold]", ":smile:", "[/]"):
        print_columns("Rows", ["row"], [[name]])
        print_table("Rows", [(name, name)])
        assert capsys.readouterr().out.count(name) == 3
