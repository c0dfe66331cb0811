"""The count of wrong labels: own problems in the forms of TabMWP, with an answer that the reader must not see."""

import json
import sys

from eval.benchmarks import labels

PROBLEMS = [
    ("How many plums are there?", "There are 7 plums.", "7"),
    ("What is the cost?", "The cost is $1.50.", "1.50"),
    ("What is the mean?", r"The mean is \frac{1}{4}.", "1/4"),
    ("Is the function linear or nonlinear?", "The function is linear.", "linear"),
    ("How many kites are there?", "There are 7 plums.", "8"),  # the label is read well, and is not the answer
    ("Who won?", "It ended with 7 points.", "Ada"),
]


def test_labels_are_counted_as_kept_wrong_and_dropped_by_reason(tmp_path, monkeypatch, capsys):
    lines = [json.dumps(dict(zip(("question", "solution", "answer"), row, strict=True))) for row in PROBLEMS]
    (tmp_path / "problems.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "argv", ["labels", "--tabmwp", str(tmp_path / "problems.jsonl"), "--show", "wrong"])
    labels.main()
    shown, *counts = capsys.readouterr().out.splitlines()
    assert shown.startswith("How many kites")
    assert shown.endswith("true 8 | label 7")
    assert counts == ["6 problems, 5 kept, 1 wrong (20.00%)", "dropped, other_kind: 1"]
