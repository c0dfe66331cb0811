"""The pass rates of changed pictures: only the pictures change, and only rows that were easy are counted."""

import numpy as np
import pytest

from eval.benchmarks.learning import changed_pictures
from trl_vade.testbed import build_dataset

pytestmark = pytest.mark.benchmark


def test_only_the_pictures_of_changed_rows_differ():
    rows = build_dataset(6, 1, progress=False)["train"]
    other = changed_pictures.changed(rows, "gaussian-2")
    assert other.remove_columns("images").to_dict() == rows.remove_columns("images").to_dict()
    pairs = zip(rows["images"], other["images"], strict=True)
    assert all(not np.array_equal(before[0], after[0]) for before, after in pairs)


def test_the_report_has_a_line_for_each_kind_and_the_mean_over_seeds(monkeypatch):
    kinds = ["original", *(f"{name}-{level}" for name in changed_pictures.IMAGE_KINDS for level in (1, 2, 3))]
    monkeypatch.setattr(
        changed_pictures,
        "pass_rates",
        lambda seed, num_rows: {kind: np.full(4, 0.5 + 0.1 * seed if kind == "blur-2" else 0.9) for kind in kinds},
    )
    lines = changed_pictures.report([0, 2], 10).splitlines()
    assert lines[0].startswith("4, 4 of 10 rows")
    assert "| blur | 0.900 ± 0.000 | 0.600 ± 0.100 | 0.900 ± 0.000 |" in lines
    assert len(lines) == 4 + len(changed_pictures.IMAGE_KINDS)
