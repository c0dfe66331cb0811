import pytest

from eval.benchmarks import outage


@pytest.mark.benchmark
def test_no_batch_of_an_outage_is_observed_and_the_error_stays_where_it_was(capsys):
    outage.main(["--seeds", "0", "1", "--batch", "20"])
    title, _, *table = capsys.readouterr().out.splitlines()
    assert title.startswith("20 x 8; mean over 2 seeds")
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    figures = {tuple(cells[:3]): dict(zip(head[3:], cells[3:], strict=True)) for cells in rows}
    assert len(figures) == 2 * len(outage.RULES) * 2
    for value in ("all 0", "all 1"):
        guarded, plain = (figures[value, "symmetric gain", arm] for arm in ("on", "off"))
        for column in ("before", "error before"):
            assert guarded[column] == plain[column]  # nothing differs before the outage begins
        assert guarded["outage batches observed"] == guarded["sound ones left out"] == "0.0 (0 to 0)"
        assert float(guarded["10 later"].split()[0]) < 0.8 * float(plain["10 later"].split()[0])
