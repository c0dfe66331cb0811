"""The end-of-run report, from an output directory whose posterior and selection log come from the real sampler."""

import json
import sys

import pytest

from tests.support.finished_run import BATCHES, UNSCORED, write_run
from tests.support.refusals import refused
from trl_vade.errors import SnapshotError, VADEError
from trl_vade.selection.log import SELECTION_LOG_FILE
from trl_vade.selection.report.record import RUN_FILE, TRAINER_STATE_FILE, read_run
from trl_vade.selection.report.summary import percent, summarise, summary_rows
from trl_vade.selection.report.writing import REPORT_FILE, SUMMARY_FILE, write_report


@pytest.fixture
def output_dir(tmp_path):
    return write_run(tmp_path / "out")


def strict_json(path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# ----------------------------------------------------------------------------------------------------- the numbers


def test_the_summary_worked_out_by_hand(output_dir):
    assert summarise(read_run(output_dir)) == {
        "sampler": "thompson",
        "steps": 16,
        "generation_batches": 8,
        "refills": 0,
        "rollouts": 32,
        "trained_completions": 20,
        "effective_gradient_ratio": [0.5, 0.0, 1.0, 1.0, 0.0, 0.5, 1.0, 0.5],
        "effective_gradient_ratio_mean": pytest.approx(4.5 / 8),
        "effective_gradient_ratio_first_quarter": 0.25,
        "effective_gradient_ratio_last_quarter": 0.75,
        "even_draw_ratio": [1 / 3] * 8,
        "even_draw_ratio_last_quarter": pytest.approx(1 / 3),
        "validation": [
            {"step": 0, "rollouts": 0, "score": 0.25, "standard_error": None},
            # batches 1 to 3 began before the fifth step was finished
            {"step": 5, "rollouts": 12, "score": 0.5, "standard_error": None},
            {"step": 16, "rollouts": 32, "score": 0.625, "standard_error": None},
        ],
        "seconds": {"selection": 1.5, "generation": 40.0, "update": 58.5, "validation": 2.5},
        "seconds_until_step": 16,
    }


def test_rollouts_are_counted_up_to_the_steps_that_are_finished(output_dir):
    rollouts = {step: read_run(output_dir).rollouts_before(step) for step in (0, 1, 2, 3, 4, 15, 16, 99)}
    assert rollouts == {0: 0, 1: 4, 2: 4, 3: 8, 4: 8, 15: 32, 16: 32, 99: 32}


def test_a_run_of_three_batches_has_quarters_of_one(tmp_path):
    summary = summarise(read_run(write_run(tmp_path, batches=BATCHES[:3])))
    assert summary["effective_gradient_ratio_first_quarter"] == 0.5
    assert summary["effective_gradient_ratio_last_quarter"] == 1.0


def test_batches_without_any_score_teach_nothing(tmp_path):
    summary = summarise(read_run(write_run(tmp_path, batches=[(UNSCORED, UNSCORED)])))
    assert summary["effective_gradient_ratio_first_quarter"] == 0.0
    assert summary["effective_gradient_ratio_mean"] == 0.0


def test_the_validation_score_is_that_of_the_success_reward_and_of_no_other(tmp_path):
    history = [{"step": 4, "eval_rewards/format/mean": 1.0, "eval_reward": 1.5, "eval_rewards/accuracy/mean": 0.5}]
    assert [entry["score"] for entry in read_run(write_run(tmp_path, history=history)).validation] == [0.5]


def test_refills_are_no_generation_batches_and_have_a_line_of_their_own(tmp_path):
    summary = summarise(read_run(write_run(tmp_path, refills={2: 1, 3: 2, 8: 1})))
    assert (summary["generation_batches"], summary["refills"]) == (5, 3)
    assert ("refills", "3") in summary_rows(summary)
    assert len(summary["effective_gradient_ratio"]) == 8


def test_the_table_for_a_person_has_every_figure(output_dir):
    summary = summarise(read_run(output_dir))
    even_draw_ratio = summary["even_draw_ratio_last_quarter"]
    assert dict(summary_rows(summary)) == {
        "sampler": "thompson",
        "optimiser steps": "16",
        "generation batches": "8",
        "rollouts": "32",
        "rollouts trained on": "20",
        "effective gradient ratio, first quarter": "25.0 %",
        "effective gradient ratio, last quarter": "75.0 %",
        "an even draw's ratio, last quarter (estimate)": percent(even_draw_ratio),
        "validation score, step 0": "25.0 %",
        "validation score, step 16": "62.5 %",
        "seconds in selection": "1.5",
        "seconds in generation and scoring": "40.0",
        "seconds in update": "58.5",
        "seconds in validation": "2.5",
    }


def test_a_run_without_validation_has_no_line_for_it_and_no_zero(tmp_path):
    run = read_run(write_run(tmp_path, history=[{"step": 1, "reward": 0.5}]))
    rows = dict(summary_rows(summarise(run)))
    assert run.validation == []
    assert not [name for name in rows if name.startswith("validation")]
    assert "rollouts trained on" not in rows  # a run of before this figure was logged


def test_a_validation_score_has_the_error_of_its_number_of_answers(output_dir):
    (output_dir / RUN_FILE).write_text('{"success_reward": "accuracy", "validation_answers": 100}')
    errors = [entry["standard_error"] for entry in read_run(output_dir).validation]
    assert errors == pytest.approx([0.75**0.5 / 20, 0.05, (0.625 * 0.375) ** 0.5 / 10])


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_description_of_the_run_is_a_warning_and_the_report_goes_on(output_dir, caplog, content):
    (output_dir / RUN_FILE).write_text(content)
    assert read_run(output_dir).about == {}
    [record] = caplog.records
    assert RUN_FILE in record.message


# ------------------------------------------------------------------------------------------------------- the files


def test_the_summary_file_is_strict_json(output_dir):
    summary = write_report(output_dir)
    assert strict_json(output_dir / SUMMARY_FILE) == summary == summarise(read_run(output_dir))


def test_without_matplotlib_there_is_a_summary_and_one_line_says_what_to_install(output_dir, monkeypatch, caplog):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("selection.report.panels", "pictures.style", "pictures.svg"):
        monkeypatch.delitem(sys.modules, f"trl_vade.{name}", raising=False)
    write_report(output_dir)
    assert strict_json(output_dir / SUMMARY_FILE)["rollouts"] == 32
    assert not (output_dir / REPORT_FILE).exists()
    [record] = caplog.records
    assert 'pip install "trl-vade[report]"' in record.message


# -------------------------------------------------------------------------------------------------- missing files


def test_without_a_trainer_state_there_is_a_report_without_rewards_and_the_log_says_so(output_dir, caplog):
    (output_dir / TRAINER_STATE_FILE).unlink()
    assert write_report(output_dir)["validation"] == []
    [record] = caplog.records
    assert TRAINER_STATE_FILE in record.message


def test_what_is_missing_is_named(output_dir, tmp_path):
    with refused(SnapshotError, names=["nowhere"]):
        write_report(tmp_path / "nowhere")
    log = output_dir / SELECTION_LOG_FILE
    for remove in (lambda: log.write_text(""), log.unlink):
        remove()
        with refused(VADEError, names=[log]):
            write_report(output_dir)
