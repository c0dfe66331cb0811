"""The seconds of a save and of a resume can be measured."""

from eval.benchmarks.saving import main


def test_each_part_of_a_save_and_a_resume_has_its_seconds(capsys):
    main(["--mib", "1", "--lines", "3", "--rows", "2"])
    figures = [float(line.split()[-2]) for line in capsys.readouterr().out.splitlines()]
    assert len(figures) == 8
    assert all(figure >= 0 for figure in figures)
