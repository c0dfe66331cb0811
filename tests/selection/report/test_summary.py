"""The figures of a run and its two sentences, from a folder whose posterior and log come from the real sampler."""

import json
import sys

import numpy as np
import pytest

from tests.support.finished_run import BATCHES, HISTORY, UNSCORED, write_run
from trl_vade.selection.report.record import RUN_FILE, Run, read_run, standard_error
from trl_vade.selection.report.summary import change_of, figures, percent, summarise, summary_rows, verdict, with_error
from trl_vade.selection.report.writing import PAGE_FILE, REPORT_FILE, SUMMARY_FILE, write_report


@pytest.fixture
def output_dir(tmp_path):
    return write_run(tmp_path / "out")


def test_the_summary_worked_out_by_hand_is_in_its_file(output_dir):
    validation = [(0, 0, 0.25), (5, 12, 0.5), (16, 32, 0.625)]  # batches 1 to 3 began before step 5 was finished
    names = ("step", "rollouts", "score", "standard_error")
    expected = {
        **{"sampler": "thompson", "steps": 16, "generation_batches": 8, "refills": 0, "rollouts": 32},
        **{"trained_completions": 20, "effective_gradient_ratio": [0.5, 0.0, 1.0, 1.0, 0.0, 0.5, 1.0, 0.5]},
        **{"groups_first_quarter": 4, "groups_last_quarter": 4, "seconds_until_step": 16},
        **{"effective_gradient_ratio_first_quarter": 0.25, "effective_gradient_ratio_last_quarter": 0.75},
        **{"even_draw_ratio": [1 / 3] * 8, "even_draw_ratio_last_quarter": 1 / 3},
        "validation": [dict(zip(names, (*found, None), strict=True)) for found in validation],
        "seconds": {"selection": 1.5, "generation": 40.0, "update": 58.5, "validation": 2.5},
    }
    assert write_report(output_dir) == json.loads((output_dir / SUMMARY_FILE).read_text()) == expected


def test_the_table_for_a_person_has_every_figure(output_dir):
    rows = dict(summary_rows(summarise(read_run(output_dir))))
    ratios = [value for name, value in rows.items() if "useful groups" in name]
    assert ratios == ["25.0 %", "75.0 %", percent(1 / 3)]
    assert {name: value for name, value in rows.items() if "useful groups" not in name} == {
        **{"sampler": "thompson", "optimiser steps": "16", "generation batches": "8"},
        **{"rollouts": "32", "rollouts trained on": "20"},
        **{"validation score, step 0": "25.0 %", "validation score, step 16": "62.5 %"},
        **{"seconds in selection": "1.5", "seconds in generation": "40.0", "seconds in update": "58.5"},
        **{"seconds in validation": "2.5", "seconds are counted until step": "16"},
    }


@pytest.mark.parametrize(("seen", "told"), [(0.5, False), (0.75, True)])
def test_an_even_draw_is_told_of_once_most_rows_were_seen(tmp_path, seen, told):
    """Before, the estimate is the prior's: 76 % in a run where no answer was ever right."""
    log = {"step": 16, "vade/coverage": seen, "vade/even_draw_ratio": 1 / 3, "vade/effective_gradient_ratio": 0.0}
    summary = summarise(read_run(write_run(tmp_path / "out", batches=BATCHES * 10, history=[*HISTORY, log])))
    assert ("an even draw would give about 33 %" in verdict(summary)[0]) == told
    assert ("(even 33 %)" in figures(log)) == told


def test_short_unscored_refilled_and_unvalidated_runs_have_right_figures(tmp_path):
    short = summarise(read_run(write_run(tmp_path / "short", batches=BATCHES[:3])))
    ratios = [short[f"effective_gradient_ratio_{part}_quarter"] for part in ("first", "last")]
    assert ratios == [0.5, 1.0]  # a batch each
    unscored = summarise(read_run(write_run(tmp_path / "unscored", batches=[(UNSCORED, UNSCORED)])))
    assert unscored["effective_gradient_ratio_first_quarter"] == 0.0
    refilled = summarise(read_run(write_run(tmp_path / "refilled", refills={2: 1, 3: 2, 8: 1})))
    assert (refilled["generation_batches"], refilled["refills"]) == (5, 3)
    assert ("refills", "3") in summary_rows(refilled)
    run = read_run(write_run(tmp_path / "blind", history=[{"step": 1, "reward": 0.5}]))
    names = [name for name, _ in summary_rows(summarise(run))]
    assert run.validation() == []
    assert not [name for name in names if name.startswith("validation") or name == "rollouts trained on"]


def test_without_matplotlib_there_is_a_page_and_one_line_says_what_to_install(output_dir, monkeypatch, caplog):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("panels", "style"):
        monkeypatch.delitem(sys.modules, f"trl_vade.selection.report.{name}", raising=False)
    assert write_report(output_dir)["rollouts"] == 32
    assert 'pip install "trl-vade[report]"' in (output_dir / PAGE_FILE).read_text()
    assert not (output_dir / REPORT_FILE).exists()
    [record] = caplog.records
    assert 'pip install "trl-vade[report]"' in record.message


def evaluation(step, score, name="", **more):
    return {"step": step, "eval_reward": score, f"eval_{name}_runtime" if name else "eval_runtime": 1.0} | more


def test_validation_sets_with_names_are_told_apart_and_the_first_is_the_runs():
    history = [{"loss": 1.0, "step": 1}]
    history += [evaluation(step, score, name) for step in (0, 2) for name, score in (("easy", 0.9), ("hard", 0.1))]
    run = Run([], history, {"validation_answers": {"easy": 100, "hard": 25}})
    assert [found["score"] for found in run.validation()] == [0.9, 0.9]
    hard = run.validation("hard")
    assert [(found["step"], found["score"]) for found in hard] == [(0, 0.1), (2, 0.1)]
    assert hard[0]["standard_error"] == pytest.approx(0.06)  # sqrt(.1 * .9 / 25)
    assert run.seconds["seconds"]["validation"] == 4.0


def test_the_reward_that_says_success_is_the_score_and_its_error_that_of_the_number_of_answers(output_dir):
    history = [evaluation(0, 1.7, **{"eval_rewards/right/mean": 0.5})]
    history.append(evaluation(1, 1.7, **{"eval_rewards/right/mean": float("nan")}))  # without a score
    [found] = Run([], history, {"success_reward": "right", "validation_answers": 100}).validation()
    assert (found["score"], found["standard_error"]) == (0.5, pytest.approx(0.05))
    [total, _] = Run([], history, {"validation_answers": 100}).validation()
    assert (total["score"], total["standard_error"]) == (1.7, None)
    (output_dir / RUN_FILE).write_text('{"success_reward": "accuracy", "validation_answers": 100}')
    errors = [entry["standard_error"] for entry in read_run(output_dir).validation()]
    assert errors == pytest.approx([0.75**0.5 / 20, 0.05, (0.625 * 0.375) ** 0.5 / 10])


def test_the_error_is_not_smaller_than_the_spread_of_repeated_validations():
    """256 questions of very different difficulty, four answers each, scored 2,000 times."""
    random = np.random.default_rng(0)
    answers = random.random((2000, 256, 4)) < random.beta(0.5, 0.5, 256)[:, None]
    scores = answers.mean((1, 2))
    errors = [standard_error(score, 1024) for score in scores]
    assert scores.std() < np.mean(errors) < 3 * scores.std()


def test_only_shares_are_said_in_per_cent():
    for scores, error, shown in (
        ((0.495, 0.547), 0.016, ("49.5 ±1.6 %", "+5.2 points")),
        ((-1.0, 1.5), None, ("-1", "+2.5")),
    ):
        first, last = ({"score": score, "standard_error": error} for score in scores)
        assert (with_error(first), change_of(first, last)[0]) == shown


def sentences(*scores, error=None, first=100):
    evaluations = [{"step": 10 * i, "score": score, "standard_error": error} for i, score in enumerate(scores)]
    ratios = {f"effective_gradient_ratio_{name}_quarter": ratio for name, ratio in (("first", 0.53), ("last", 0.78))}
    groups = {"groups_first_quarter": first, "groups_last_quarter": 100}
    return verdict(ratios | groups | {"even_draw_ratio_last_quarter": 0.54, "validation": evaluations})


def test_useful_groups_stand_beside_an_even_draw_and_a_change_of_the_score_beside_its_error():
    assert all(figure in sentences(0.5)[0] for figure in ("78 ±4 %", "53 ±5 %", "54 %", "estimate"))
    assert "%" not in sentences(0.5, first=29)[0]  # such a share would be any number
    for after, error, said in (
        (0.53, 0.0156, "within noise"),
        (0.6, 0.0156, "more than noise"),
        (0.4, 0.0156, "more than noise"),
        (0.6, None, "not known"),
    ):
        [_, validation] = sentences(0.5, 0.9, after, error=error)
        assert said in validation
        assert f"{100 * (after - 0.5):+.1f}" in validation
        assert ("±1.6" in validation) == (error is not None)
    for scores in ((), (0.5,)):
        assert "noise" not in sentences(*scores)[1]
