"""The HTML report: one file that needs nothing else, and is right whatever the run has left."""

import json
import re
from html.parser import HTMLParser

import pytest

from tests.support.finished_run import HISTORY, write_run
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE, read_run
from trl_vade.selection.report.writing import PAGE_FILE, write_report

VOID = {"meta", "img", "br", "hr", "link", "input"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ABOUT = {
    "starts": [{"time": "2026-01-01T00:00:00+00:00", "step": 0}, {"time": "2026-01-02T00:00:00+00:00", "step": 8}],
    **{"command": "python train.py --seed 3", "rewards": ["accuracy"], "sampler": "thompson"},
    **{"success_reward": "accuracy", "validation_answers": 400, "machine": {"device": "CPU", "processes": 1}},
    "changed_settings": ["seed"],
    "settings": {"seed": 3, "learning_rate": 1e-6, "output_dir": "here"},
}


class Page(HTMLParser):
    """Collects tags and texts, and sees that every element is closed in its place."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.texts = [], [], []
        self.feed(text)
        assert self.open == []
        self.text = " ".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def rows_of(run):
    """What the trainer would keep of this run: a question that is code, and a picture of one row."""
    seen = sorted({row for line in run.lines for row in line["sample_index"]})
    about = {"question": "<script>alert(1)</script>", "answer": "7 & more", "pass_rate": 0.5, "visits": 2}
    rows = {str(row): {"id": f"<row {row}>", **about} for row in seen}
    rows[str(seen[0])]["picture"] = PIXEL
    return {"hardest": seen[:2], "easiest": seen[2:3], "rows": rows}


def page(folder, *, rows=True, about=ABOUT, **more):
    """The text of the page of a run, and its file read."""
    run = read_run(write_run(folder, **more))
    if rows:
        (folder / ROWS_FILE).write_text(json.dumps(rows_of(run)))
    (folder / RUN_FILE).write_text(json.dumps(about)) if about else (folder / RUN_FILE).unlink()
    write_report(folder)
    return Page((folder / PAGE_FILE).read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_pictures")
def test_the_page_is_one_whole_document_that_asks_no_other_host_for_anything(tmp_path):
    read = page(tmp_path)
    loaded = [value for name, value in read.attributes if name in ("src", "href", "xlink:href", "action", "data")]
    assert sum(value.startswith("data:image/svg+xml") for value in loaded) == 4  # the curves
    assert all(value.startswith("data:image/") for value in loaded)
    text = (tmp_path / PAGE_FILE).read_text()
    assert not re.search("url\\(http|@import|<script", text)
    assert "default-src 'none'" in text


def test_the_page_tells_verdict_health_rows_and_recipe_and_texts_of_the_data_are_texts(tmp_path):
    read = page(tmp_path)
    for part in ("Too few groups", "from 25.0 ±2.2 % to 62.5 ±2.4 %: +37.5 points, more than noise"):
        assert part in read.text
    for part in ("<row ", "reward outage", "python train.py --seed 3", "2026-01-02T00:00:00+00:00, step 8"):
        assert part in read.text
    assert "<script>alert(1)</script>" in read.texts
    assert "7 & more" in read.text
    assert [value for name, value in read.attributes if name == "src"] == [PIXEL]


def test_what_a_run_did_not_leave_is_left_out_and_a_spread_is_not_called_a_pass_rate(tmp_path):
    for number, (rows, about) in enumerate([(True, ABOUT), (True, None), (False, ABOUT), (False, None)]):
        texts = page(tmp_path / str(number), rows=rows, about=about).texts
        assert ("Rows" in texts, "Recipe" in texts) == (rows, about is not None)
    text = page(tmp_path / "spreads", history=[{"step": 1, "vade/mean_spread": 0.3}]).text
    assert ("rewards differ least" in text, "by the pass rate" in text) == (True, False)


def test_outages_and_cut_answers_are_said_in_words(tmp_path):
    bad = {"vade/outage": 1.0, "completions/clipped_ratio": 0.9, "grad_norm": float("nan"), "step": 16}
    text = page(tmp_path, history=[*HISTORY, bad]).text
    assert "90.0 % many: raise max_completion_length" in re.sub(r"\s+", " ", text)
    assert "warnings in the log" in text
