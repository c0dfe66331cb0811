"""The benchmark of saves at a small size; it checks itself that the batch comes back to the bit."""

import re
import sys

from eval.benchmarks import saves


def test_a_save_and_a_resume_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(
        sys,
        "argv",
        ["saves", "--rows", "2", "--num_generations", "2", "--megapixels", "0.1", "--lines", "3"],
    )
    saves.main()
    text = capsys.readouterr().out
    pictures = float(re.search(r"with (\d+) MiB of pictures", text)[1])
    assert float(re.search(r"on the disk: ([\d.]+) MiB", text)[1]) < 0.2 * pictures
    assert len(re.findall(r": [\d.]+ s, [\d,-]+ MiB more memory", text)) == 2
    assert len(re.findall(r"marker of a checkpoint of 37.5 GB (written|checked): 0.\d+ s", text)) == 2
    assert "a line takes" in text
    assert re.search(r"save: [\d.]+ s.*\n(.*\n)*resume: [\d.]+ s", text)
