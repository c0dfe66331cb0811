"""What a run leaves in its output directory when `train` ends."""

import json
import logging
from functools import partial
from pathlib import Path

import pytest
from datasets import concatenate_datasets
from transformers import TrainerCallback

from tests.support.commands import run
from tests.support.runs import StopAfter, assert_equal_weights, says_a_digit, train, weights
from trl_vade import VADEGRPOTrainer, VADEReportCallback
from trl_vade.selection.report.record import ROWS_FILE, RUN_FILE
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE
from trl_vade.trainer.report import MOST_STRATA

train = partial(train, report=True)


@pytest.fixture
def reporting(make_args):
    return partial(make_args, max_steps=2)


def summary_of(args):
    return json.loads((Path(args.output_dir) / SUMMARY_FILE).read_text())


def picture_of(args):
    return Path(args.output_dir) / REPORT_FILE


def kept(args, name):
    return json.loads((Path(args.output_dir) / name).read_text())


def page_of(args):
    return (Path(args.output_dir) / PAGE_FILE).read_text()


@pytest.mark.usefixtures("drawn_pictures")
def test_a_run_leaves_its_summary_its_picture_and_its_page_by_itself(text_model_path, text_rows, make_args):
    args = make_args(max_steps=2)
    train(text_model_path, text_rows, args)
    assert (summary_of(args)["generation_batches"], summary_of(args)["rollouts"]) == (2, 32)
    assert picture_of(args).read_bytes().startswith(b"\x89PNG")
    assert {"max_completion_length", "learning_rate"} <= {*kept(args, RUN_FILE)["changed_settings"]}
    rows = kept(args, ROWS_FILE)
    chosen = {line["key"] for line in rows["rows"].values()}
    assert len(chosen) == 8  # two batches of four rows
    assert all(about["question"].split()[0] == "say" for about in rows["rows"].values())
    for text in (rows["rows"][str(rows["hardest"][0])]["question"], "learning_rate", "<svg"):
        assert text in page_of(args)


def test_a_run_that_called_nothing_but_train_can_be_reported_later(text_model_path, text_rows, reporting):
    args = reporting(save_strategy="steps", save_steps=2)
    train(text_model_path, text_rows, args)
    left = summary_of(args)
    picture_of(args).unlink()
    result = run("report", args.output_dir)
    assert result.exit_code == 0, result.output
    assert picture_of(args).exists()
    again = summary_of(args)
    for name in left.keys() - {"seconds"}:  # of the last save, which is a moment earlier
        assert again[name] == left[name]


def test_the_tasks_of_the_rows_are_kept(text_model_path, text_rows, reporting):
    args = reporting(vade_stratify_by="kind")
    rows = text_rows.add_column("kind", ["a", "b"] * 12).add_column("task", ["no"] * 24)
    train(text_model_path, rows, args)
    tasks = kept(args, ROWS_FILE)["tasks"]
    assert {name: part["rows"] for name, part in tasks.items()} == {"a": 12, "b": 12}
    assert {row % 2 for row in tasks["a"]["chosen"]} == {0}


@pytest.mark.slow
def test_without_such_a_setting_task_and_level_name_the_strata_unless_there_are_too_many(
    text_model_path, text_rows, reporting
):
    rows = concatenate_datasets([text_rows, text_rows]).add_column("task", ["count"] * 48)
    for levels, expected in ((2, True), (MOST_STRATA, True), (MOST_STRATA + 1, False)):
        args = reporting()
        train(text_model_path, rows.add_column("level", [row % levels for row in range(48)]), args)
        tasks = kept(args, ROWS_FILE)["tasks"]
        assert bool(tasks) == expected
        assert all(row % levels == int(name.removeprefix("count ")) for name in tasks for row in tasks[name]["chosen"])


def test_a_report_is_a_callback_that_can_be_removed(text_model_path, text_rows, make_args):
    args = make_args(max_steps=1)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    trainer.remove_callback(VADEReportCallback)
    trainer.train()
    assert not any((Path(args.output_dir) / name).exists() for name in (SUMMARY_FILE, RUN_FILE, ROWS_FILE, PAGE_FILE))
    assert not picture_of(args).exists()


def test_a_report_that_fails_is_a_warning_and_the_training_succeeds(text_model_path, text_rows, reporting, caplog):
    class BlockTheSummary(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            (Path(args.output_dir) / SUMMARY_FILE).mkdir(parents=True)

    with caplog.at_level(logging.WARNING):
        trainer = train(text_model_path, text_rows, reporting(), callbacks=[BlockTheSummary()])
    assert trainer.state.global_step == 2
    assert [record for record in caplog.records if "no report" in record.message and SUMMARY_FILE in record.message]


def test_a_resumed_run_has_a_report_of_all_of_it(text_model_path, text_rows, reporting):
    args = reporting(save_strategy="steps", save_steps=1)
    train(text_model_path, text_rows, args, callbacks=[StopAfter(1)])
    assert summary_of(args)["steps"] == 1
    VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).train(resume_from_checkpoint=True)
    assert (summary_of(args)["steps"], summary_of(args)["generation_batches"]) == (2, 2)


def test_a_resumed_run_keeps_its_rows_and_all_its_starts(text_model_path, text_rows, reporting):
    args = reporting(save_strategy="steps", save_steps=1)
    whole = reporting(save_strategy="steps", save_steps=1, output_dir=f"{args.output_dir}-whole")
    train(text_model_path, text_rows, whole)
    train(text_model_path, text_rows, args, callbacks=[StopAfter(1)])
    VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).train(resume_from_checkpoint=True)
    assert kept(args, ROWS_FILE) == kept(whole, ROWS_FILE)
    assert [start["step"] for start in kept(args, RUN_FILE)["starts"]] == [0, 1]


def test_what_a_report_notes_changes_nothing_of_the_run(text_model_path, text_rows, make_args, tmp_path):
    runs = []
    for report in (False, True):
        place = {"output_dir": str(tmp_path / str(report)), "save_strategy": "steps", "save_steps": 2}
        runs.append(train(text_model_path, text_rows, make_args(**place), report=report))
    off, on = ([{**e, **dict.fromkeys([n for n in e if is_time(n)])} for e in run.state.log_history] for run in runs)
    assert off == on
    assert_equal_weights(weights(runs[0]), weights(runs[1]))


def is_time(name):
    return any(word in name for word in ("runtime", "seconds", "per_second", "step_time"))


def test_a_run_without_a_selection_leaves_no_report(text_model_path, text_rows, reporting):
    args = reporting(vade_sampler="uniform", shuffle_dataset=False)
    train(text_model_path, text_rows, args)
    assert not (Path(args.output_dir) / SUMMARY_FILE).exists()
