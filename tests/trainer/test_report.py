"""What a run leaves in its output directory when `train` ends."""

import json
from html import escape
from pathlib import Path

import pytest
from datasets import ClassLabel

from tests.support.rows import text_of
from tests.support.runs import StopAfter, says_a_digit
from trl_vade import VADEGRPOTrainer, VADEReportCallback
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE

FILES = (SUMMARY_FILE, RUN_FILE, ROWS_FILE, PAGE_FILE, REPORT_FILE)


@pytest.fixture
def reported(made):
    """A function that trains two steps with a report, and returns the trainer and its folder."""

    def train(*given, checkpoint=None, **settings):
        trainer = made(*given, **{"max_steps": 2} | settings)
        trainer.add_callback(VADEReportCallback(trainer))
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer, Path(trainer.args.output_dir)

    return train


def kept(folder, name):
    return json.loads((folder / name).read_text())


@pytest.mark.usefixtures("drawn_pictures")
def test_a_run_leaves_its_summary_its_picture_and_its_page_by_itself(text_model_path, text_rows, make_args):
    args = make_args(max_steps=2)
    VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).train()
    folder = Path(args.output_dir)
    summary, rows = kept(folder, SUMMARY_FILE), kept(folder, ROWS_FILE)
    assert (summary["generation_batches"], summary["rollouts"]) == (2, 32)
    assert (folder / REPORT_FILE).read_bytes().startswith(b"\x89PNG")
    assert {"max_completion_length", "learning_rate"} <= {*kept(folder, RUN_FILE)["changed_settings"]}
    assert len({about["key"] for about in rows["rows"].values()}) == 8  # two batches of four rows
    assert all(about["question"].split()[0] == "say" for about in rows["rows"].values())
    page = (folder / PAGE_FILE).read_text()
    for text in (rows["rows"][str(rows["hardest"][0])]["question"], "learning_rate", "image/svg"):
        assert text in page


@pytest.mark.parametrize("refills", [False, True])
def test_each_row_has_the_last_completion_of_its_last_group(reported, text_rows, refills):
    """With refills the groups that are dropped have theirs, too: the hardest rows are among them."""
    said = {}

    def notes_a_digit(completions, limit, number, **columns):
        said.update(zip(number, (text_of(each) for each in completions), strict=True))
        return says_a_digit(completions, limit)

    _, folder = reported(notes_a_digit, text_rows.add_column("number", [*range(24)]), vade_dynamic_sampling=refills)
    rows = kept(folder, ROWS_FILE)
    assert {int(row): about["completion"] for row, about in rows["rows"].items()} == said
    assert escape(said[rows["hardest"][0]]) in (folder / PAGE_FILE).read_text()


@pytest.mark.parametrize(("settings", "names"), [({"vade_stratify_by": "kind"}, ["even", "odd"]), ({}, [0, 1, 2])])
def test_the_tasks_of_the_rows_are_kept_by_their_names(reported, text_rows, settings, names):
    """From the column of the settings, else from task and level."""
    rows = text_rows.add_column("kind", [0, 1] * 12).cast_column("kind", ClassLabel(names=["even", "odd"]))
    rows = rows.add_column("task", ["count"] * 24).add_column("level", [row % 3 for row in range(24)])
    trainer, folder = reported(rows=rows, **settings)
    shares = {name for entry in trainer.state.log_history for name in entry if "selected_share" in name}
    assert shares == {f"vade/selected_share/{name}" for name in names if settings}
    found, names = kept(folder, ROWS_FILE), [name if settings else f"count {name}" for name in names]
    assert {*found["tasks"]} == {about["task"] for about in found["rows"].values()} == {*names}
    for number, name in enumerate(names):
        assert {row % len(names) for row in found["tasks"][name]} == {number}


def test_as_many_tasks_as_names_of_rows_are_none(reported, text_rows, monkeypatch):
    monkeypatch.setattr("trl_vade.trainer.report.MOST_STRATA", 2)
    _, folder = reported(rows=text_rows.add_column("task", ["a", "b", "c"] * 8))
    assert kept(folder, ROWS_FILE)["tasks"] == {}


def test_a_report_is_a_callback_that_can_be_removed_and_a_run_without_a_selection_leaves_none(run, reported):
    without = run(max_steps=1)
    _, plain = reported(vade_sampler="uniform", shuffle_dataset=False)
    assert not any((Path(without.args.output_dir) / name).exists() for name in FILES)
    assert not (plain / SUMMARY_FILE).exists()


def test_a_report_that_fails_is_a_warning_and_the_training_succeeds(reported, tmp_path, caplog):
    (tmp_path / "run" / SUMMARY_FILE).mkdir(parents=True)
    trainer, _ = reported(output_dir=tmp_path / "run")
    assert trainer.state.global_step == 2
    assert [record for record in caplog.records if "no report" in record.message and SUMMARY_FILE in record.message]


def test_a_resumed_run_has_a_report_of_all_of_it_with_its_rows(reported, tmp_path):
    saves = {"save_strategy": "steps", "save_steps": 1}
    _, whole = reported(**saves)
    parts = saves | {"output_dir": tmp_path / "parts"}
    _, folder = reported(more={"callbacks": [StopAfter(1)]}, **parts)
    assert kept(folder, SUMMARY_FILE)["steps"] == 1
    reported(checkpoint=True, **parts)
    assert (kept(folder, SUMMARY_FILE)["steps"], kept(folder, SUMMARY_FILE)["generation_batches"]) == (2, 2)
    assert kept(folder, ROWS_FILE) == kept(whole, ROWS_FILE)
