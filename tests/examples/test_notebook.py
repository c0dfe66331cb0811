"""The notebook, cell by cell, with the testbed's questions and its model untrained."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

NOTEBOOK = json.loads((Path(__file__).parents[2] / "examples" / "quickstart.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
INSTALL, *CELLS = CODE


@pytest.fixture
def names(monkeypatch, tmp_path, vision_model_path):
    """What the cells define; figures stay open until the test ends."""
    monkeypatch.setattr("trl_vade.testbed.load_testbed_model", lambda: vision_model_path)
    for setting, value in {"ROWS": "48", "BATCHES": "1", "OUTPUT": str(tmp_path / "runs")}.items():
        monkeypatch.setenv(f"NOTEBOOK_{setting}", value)
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    names = {}
    for cell in CELLS:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    yield names
    plt.close("all")


@pytest.mark.slow
def test_the_notebook_compares_two_runs_and_shows_the_rows_that_its_posterior_finds_hardest(names, tmp_path):
    curves, pictures = (plt.figure(number) for number in plt.get_fignums())
    for sampler in ("uniform", "thompson"):
        left = {file.name for file in (tmp_path / "runs" / sampler).iterdir()}
        assert {"vade_selection.jsonl", "model.safetensors", "vade_report.png"} <= left
    assert [len(line.get_ydata()) for line in curves.axes[0].lines] == [1, 1, 1, 1]  # a mean and its points, twice

    table, hardest = names["table"], names["hardest"]
    assert len(table) == 32
    assert list(hardest["pass_rate"]) == sorted(table.pass_rate)[:6]
    for axis, row in zip(pictures.axes, hardest["row"], strict=True):
        shown = names["rows"][int(row)]
        assert f"answer: {shown['answer']}" in axis.get_title()
        assert axis.images[0].get_array().shape[:2] == shown["images"][0].size


def test_the_notebook_is_saved_as_the_format_asks_and_without_outputs():
    assert INSTALL["source"][0].startswith("%pip install")
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(names)) == len(names)
    assert {cell["cell_type"] for cell in NOTEBOOK["cells"]} == {"code", "markdown"}
    assert [(cell["outputs"], cell["execution_count"]) for cell in CODE] == [([], None)] * len(CODE)
