"""The HTML report: one file that needs nothing else, and is right whatever the run has left."""

import json
import logging
import re
from html.parser import HTMLParser

import pytest

from tests.support.finished_run import HISTORY, write_run
from trl_vade.pictures.palette import PALETTE
from trl_vade.selection.report.page import write_page
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.report.writing import PAGE_FILE, write_report

VOID = {"meta", "img", "br", "hr", "link", "input"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ABOUT = {
    "starts": [{"time": "2026-01-01T00:00:00+00:00", "step": 0}, {"time": "2026-01-02T00:00:00+00:00", "step": 8}],
    "command": "python train.py --seed 3",
    "model": "Qwen/Qwen2.5-VL-3B-Instruct",
    "dataset": "you/rows",
    "dataset_revision": None,
    "rows": 6,
    "rewards": ["accuracy"],
    "sampler": "thompson",
    "success_reward": "accuracy",
    "validation_answers": 400,
    "machine": {"device": "CPU", "processes": 1},
    "versions": {"trl": "1.16.0"},
    "changed_settings": ["seed"],
    "settings": {"seed": 3, "learning_rate": 1e-6, "output_dir": "here"},
}


class Page(HTMLParser):
    """Collects tags and texts, and sees that every element is closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.texts, self.ids = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data.strip())


def rows_of(folder):
    """What the trainer would keep of this run: a question that is code, and a picture of two rows."""
    seen = sorted({row for line in read_run(folder).lines for row in line["sample_index"]})
    about = {
        str(row): {
            "key": f"{row:016x}",
            "id": f"<row {row}>",
            "question": "<script>alert(1)</script>",
            "answer": "7 & more",
            "pass_rate": 0.5,
            "visits": 2,
        }
        for row in seen
    }
    about[str(seen[0])]["picture"] = PIXEL
    about[str(seen[1])]["picture"] = "https://elsewhere/picture.png"
    return {"hardest": seen[:2], "easiest": seen[2:3], "rows": about}


TASKS = {"count": {"rows": 3, "chosen": [0, 2, 4]}, "read": {"rows": 3, "chosen": [1, 3, 5]}}


def run_of(folder, *, rows=True, about=ABOUT, **more):
    write_run(folder, **more)
    if rows:
        (folder / ROWS_FILE).write_text(json.dumps(rows_of(folder) | (rows if isinstance(rows, dict) else {})))
    (folder / RUN_FILE).write_text(json.dumps(about)) if about else (folder / RUN_FILE).unlink()
    return read_run(folder)


def page(run, folder):
    write_page(folder / PAGE_FILE, run, summarise(run), {})
    return (folder / PAGE_FILE).read_text()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A page with its curves, which take a second to draw."""
    folder = tmp_path_factory.mktemp("drawn")
    run_of(folder)
    write_report(folder)
    return (folder / PAGE_FILE).read_text()


@pytest.fixture
def texts(tmp_path):
    return " ".join(Page(page(run_of(tmp_path), tmp_path)).texts)


@pytest.mark.slow
def test_the_page_is_one_whole_document_that_asks_no_other_host_for_anything(drawn):
    read = Page(drawn)
    assert len(read.ids) == len(set(read.ids))
    loaded = [value for name, value in read.attributes if name in ("src", "href", "xlink:href", "action", "data")]
    assert loaded
    assert all(value.startswith(("#", "data:image/")) for value in loaded)
    assert "url(http" not in drawn
    assert "@import" not in drawn
    assert "default-src 'none'" in drawn


@pytest.mark.slow
def test_every_colour_of_a_curve_has_a_value_in_light_and_in_dark(drawn):
    used = set(re.findall(r"var\(--([\w-]+)", drawn))
    light, dark = (set(re.findall(r"--([\w-]+):", part)) for part in re.findall(r":root \{(.*?)\}", drawn, re.DOTALL))
    assert used <= light == dark
    assert set(PALETTE) <= light


def test_texts_of_the_data_are_texts_and_a_picture_from_elsewhere_is_left_out(drawn):
    read = Page(drawn)
    assert "<script>alert(1)</script>" in read.texts
    assert "7 & more" in read.texts
    assert [value for name, value in read.attributes if name == "src"] == [PIXEL]


def test_verdict_health_rows_and_recipe_are_on_the_page(texts):
    for part in ("an even draw would give", "more than noise", "<row ", "reward outage", "python train.py --seed 3"):
        assert part in texts, part
    assert "step 8 (2026-01-02" in texts


def test_the_errors_of_a_validation_come_from_the_number_of_its_answers(texts):
    assert "from 25.0 ±2.2 % to 62.5 ±2.4 %" in texts


@pytest.mark.parametrize("rows", [True, False, {"tasks": TASKS}])
@pytest.mark.parametrize("about", [ABOUT, None])
def test_what_a_run_did_not_leave_is_left_out_or_said(tmp_path, rows, about):
    read = Page(page(run_of(tmp_path, rows=rows, about=about), tmp_path))
    assert ("Rows" in read.texts) == bool(rows)
    assert (RUN_FILE in read.texts) == (about is None)
    assert ("share of the chosen groups" in read.texts) == isinstance(rows, dict)


@pytest.mark.parametrize("damaged", [{"rows": 3}, {"rows": {}, "hardest": ["x"]}, {"tasks": {"a": 3}}])
def test_damaged_rows_cost_their_part_of_the_page_alone(tmp_path, damaged, caplog):
    run = run_of(tmp_path, rows=damaged)
    with caplog.at_level(logging.WARNING):
        assert "Health" in Page(page(run, tmp_path)).texts
    assert any("damaged" in record.message for record in caplog.records)


def test_a_file_of_rows_that_is_too_large_is_not_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("trl_vade.selection.report.record.MOST_BYTES", 100)
    with caplog.at_level(logging.WARNING):
        assert run_of(tmp_path, about=None).rows == {}
    assert any(ROWS_FILE in record.message and "100" in record.message for record in caplog.records)


def test_a_spread_is_not_called_a_pass_rate(tmp_path):
    run = run_of(tmp_path, rows={"tasks": TASKS}, history=[{"step": 1, "vade/mean_spread": 0.3}])
    texts = " ".join(Page(page(run, tmp_path)).texts)
    assert "spread of rewards" in texts
    assert "by the pass rate" not in texts


def test_outages_and_cut_answers_are_said_in_words(tmp_path):
    bad = {"vade/outage": 1.0, "completions/clipped_ratio": 0.9, "grad_norm": 2.0, "step": 16}
    texts = " ".join(Page(page(run_of(tmp_path, history=[*HISTORY, bad]), tmp_path)).texts)
    assert "max_completion_length" in texts
    assert "90.0 %" in texts
