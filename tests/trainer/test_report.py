"""What a run leaves in its output directory when `train` ends."""

import json
import logging
from functools import partial
from html import escape
from pathlib import Path

import pytest
from datasets import ClassLabel
from transformers import TrainerCallback

from tests.support.rows import text_of
from tests.support.runs import StopAfter, says_a_digit, train
from trl_vade import VADEGRPOTrainer, VADEReportCallback
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE

train = partial(train, report=True)
FILES = (SUMMARY_FILE, RUN_FILE, ROWS_FILE, PAGE_FILE, REPORT_FILE)


@pytest.fixture
def reporting(make_args):
    return partial(make_args, max_steps=2)


def kept(args, name):
    return json.loads((Path(args.output_dir) / name).read_text())


@pytest.mark.usefixtures("drawn_pictures")
def test_a_run_leaves_its_summary_its_picture_and_its_page_by_itself(text_model_path, text_rows, reporting):
    args = reporting()
    train(text_model_path, text_rows, args)
    summary, rows = kept(args, SUMMARY_FILE), kept(args, ROWS_FILE)
    assert (summary["generation_batches"], summary["rollouts"]) == (2, 32)
    assert (Path(args.output_dir) / REPORT_FILE).read_bytes().startswith(b"\x89PNG")
    assert {"max_completion_length", "learning_rate"} <= {*kept(args, RUN_FILE)["changed_settings"]}
    assert len({about["key"] for about in rows["rows"].values()}) == 8  # two batches of four rows
    assert all(about["question"].split()[0] == "say" for about in rows["rows"].values())
    page = (Path(args.output_dir) / PAGE_FILE).read_text()
    for text in (rows["rows"][str(rows["hardest"][0])]["question"], "learning_rate", "image/svg"):
        assert text in page


@pytest.mark.parametrize("refills", [False, True])
def test_each_row_has_the_last_completion_of_its_last_group(refills, text_model_path, text_rows, reporting):
    """With refills the groups that are dropped have theirs, too: the hardest rows are among them."""
    said = {}

    def notes_a_digit(completions, limit, number, **columns):
        said.update(zip(number, (text_of(each) for each in completions), strict=True))
        return says_a_digit(completions, limit)

    rows = text_rows.add_column("number", [*range(24)])
    args = reporting(vade_dynamic_sampling=refills)
    train(text_model_path, rows, args, reward=notes_a_digit)
    shown = kept(args, ROWS_FILE)["rows"]
    assert {int(row): about["completion"] for row, about in shown.items()} == said
    assert escape(said[kept(args, ROWS_FILE)["hardest"][0]]) in (Path(args.output_dir) / PAGE_FILE).read_text()


def test_the_tasks_of_the_rows_are_kept_by_their_names(text_model_path, text_rows, reporting, monkeypatch):
    """From the column of the settings, else from task and level, unless these are as many as names of rows."""
    rows = text_rows.add_column("kind", [0, 1] * 12).cast_column("kind", ClassLabel(names=["even", "odd"]))
    rows = rows.add_column("task", ["count"] * 24).add_column("level", [row % 3 for row in range(24)])
    for settings, count in (({"vade_stratify_by": "kind"}, 2), ({}, 3)):
        args = reporting(**settings)
        history = train(text_model_path, rows, args).state.log_history
        shares = {name for logged in history for name in logged if name.startswith("vade/selected_share/")}
        assert shares == {f"vade/selected_share/{name}" for name in ("even", "odd") if settings}
        found = kept(args, ROWS_FILE)
        names = ["even", "odd"] if settings else [f"count {level}" for level in range(3)]
        assert {*found["tasks"]} == {*names}
        for number, name in enumerate(names):
            assert {row % count for row in found["tasks"][name]} == {number}
        assert {about["task"] for about in found["rows"].values()} == {*names}
    monkeypatch.setattr("trl_vade.trainer.report.MOST_STRATA", 2)
    train(text_model_path, rows, args)
    assert kept(args, ROWS_FILE)["tasks"] == {}


def test_a_report_is_a_callback_that_can_be_removed(text_model_path, text_rows, make_args):
    args = make_args(max_steps=1)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    trainer.remove_callback(VADEReportCallback)
    trainer.train()
    assert not any((Path(args.output_dir) / name).exists() for name in FILES)


def test_a_report_that_fails_is_a_warning_and_the_training_succeeds(text_model_path, text_rows, reporting, caplog):
    class BlockTheSummary(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            (Path(args.output_dir) / SUMMARY_FILE).mkdir(parents=True)

    with caplog.at_level(logging.WARNING):
        trainer = train(text_model_path, text_rows, reporting(), callbacks=[BlockTheSummary()])
    assert trainer.state.global_step == 2
    assert [record for record in caplog.records if "no report" in record.message and SUMMARY_FILE in record.message]


def test_a_resumed_run_has_a_report_of_all_of_it_with_its_rows(text_model_path, text_rows, reporting):
    args = reporting(save_strategy="steps", save_steps=1)
    whole = reporting(save_strategy="steps", save_steps=1, output_dir=f"{args.output_dir}-whole")
    train(text_model_path, text_rows, whole)
    train(text_model_path, text_rows, args, callbacks=[StopAfter(1)])
    assert kept(args, SUMMARY_FILE)["steps"] == 1
    VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).train(resume_from_checkpoint=True)
    assert (kept(args, SUMMARY_FILE)["steps"], kept(args, SUMMARY_FILE)["generation_batches"]) == (2, 2)
    assert kept(args, ROWS_FILE) == kept(whole, ROWS_FILE)


def test_a_run_without_a_selection_leaves_no_report(text_model_path, text_rows, reporting):
    args = reporting(vade_sampler="uniform", shuffle_dataset=False)
    train(text_model_path, text_rows, args)
    assert not (Path(args.output_dir) / SUMMARY_FILE).exists()
