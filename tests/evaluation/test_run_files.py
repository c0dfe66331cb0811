"""A run counts only if its files are whole and agree."""

import json
import math
import shutil

import pytest

from tests.support.evaluations import SCORES, results_file, samples_file, save, save_lines, write_run
from tests.support.refusals import refused
from trl_vade.errors import EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.run_files import FAILED_REQUEST, read_run, run_folder


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def does_not_count(folder, *names, name="chartqa", seed=0, limit=None):
    """The run is refused with the `names` and with what to do."""
    with refused(EvaluationError, [folder, *names], ["same command"]):
        read_run(folder, BENCHMARKS[name], seed, limit)


def test_a_whole_run_of_each_benchmark_is_read_in_per_cent_and_a_question_without_a_score_does_not_count(tmp_path):
    for name in BENCHMARKS:
        folder = run_folder(tmp_path, BENCHMARKS[name], 3)
        write_run(folder, name, seed=3)
        save_lines(samples_file(folder, name), lines_of(samples_file(folder, name))[::-1])  # of several processes
        run = read_run(folder, BENCHMARKS[name], 3, None)
        assert (run.benchmark.name, run.seed, run.score, run.questions, run.unscored) == (name, 3, 75.0, 4, 0)
        assert run.scores == {0: 1.0, 1: 0.0, 2: 1.0, 3: 1.0}
        assert run.results_file == results_file(folder)
        assert run.unreadable_verdicts == (2 if BENCHMARKS[name].judged else 0)
    write_run(tmp_path / "run", "mixture", scores=[1.0, None, 0.0, None, 1.0])
    run = read_run(tmp_path / "run", BENCHMARKS["mixture"], 0, None)
    assert (run.questions, run.unscored, run.score) == (3, 2, pytest.approx(200 / 3))
    assert run.scores == {0: 1.0, 2: 0.0, 4: 1.0}


def test_a_run_that_left_nothing_or_two_results_files_is_refused(tmp_path):
    does_not_count(tmp_path / "nothing", "0")
    write_run(tmp_path / "run")
    file = results_file(tmp_path / "run")
    shutil.copy(file, file.with_name("20260801_130000_results.json"))
    does_not_count(tmp_path / "run", "2")


@pytest.mark.parametrize("file", [results_file, samples_file])
def test_no_prefix_of_a_file_is_taken_for_one(tmp_path, file):
    write_run(tmp_path / "run")
    path = file(tmp_path / "run")
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(EvaluationError):
            read_run(tmp_path / "run", BENCHMARKS["chartqa"], 0, None)
    path.unlink()
    does_not_count(tmp_path / "run")


def test_a_metric_that_is_no_number_or_that_its_questions_contradict_is_refused(tmp_path):
    """An empty list is what lmms-eval writes for a metric without an aggregation."""
    values = [None, math.nan, math.inf, 10**400, "N/A", [], True, 0.75001, 75.0]
    for number, (name, value) in enumerate([*(("chartqa", value) for value in values), ("mathvista", 75.0)]):
        write_run(tmp_path / f"{number}", name, value=value)
        does_not_count(tmp_path / f"{number}", name=name)


def test_questions_that_are_missing_or_doubled_or_have_no_answer_or_score_are_refused(tmp_path):
    write_run(tmp_path / "run")
    file = samples_file(tmp_path / "run")
    first, *others = lines_of(file)
    scored = [{"relaxed_overall": score} for score in ("True", 2, math.nan, {})]
    failed = [{key: f"{FAILED_REQUEST} after 5 retries] Connection error."} for key in ("filtered_resps", "resps")]
    for lines, names in (
        (others, ["3", "4"]),
        ([first, *others, first], ["5", "4"]),
        ([*others, others[0]], ["3", "4"]),
        *(([first | score, *others], []) for score in scored),
        # It scores such an answer as a wrong one: the files agree with each other.
        *(([first | answer, *others], ["question 0", "Connection error"]) for answer in failed),
        ([line | {"relaxed_overall": None} for line in (first, *others)], []),
    ):
        save_lines(file, lines)
        does_not_count(tmp_path / "run", *names)


def test_a_run_of_other_questions_than_the_limit_says_or_of_another_seed_is_refused(tmp_path):
    write_run(tmp_path / "run", scores=SCORES, original=9, limit=4)
    assert read_run(tmp_path / "run", BENCHMARKS["chartqa"], 0, 4).questions == 4
    for limit in (None, 3, 5):
        does_not_count(tmp_path / "run", "4 of 9", limit=limit)
    does_not_count(tmp_path / "run", "0", "1", seed=1, limit=4)
    write_run(tmp_path / "whole", limit=100)
    assert read_run(tmp_path / "whole", BENCHMARKS["chartqa"], 0, 100).questions == 4


def test_verdicts_that_cannot_be_read_are_counted_up_to_one_in_a_hundred(tmp_path):
    """With what a judge said in the place of an extracted answer (`scoring.mathvista`)."""
    write_run(tmp_path / "run", "mathvista")
    file = samples_file(tmp_path / "run", "mathvista")
    first, *others = lines_of(file)
    save_lines(file, [first | {"unreadable": "I am overloaded."}, *(line | {"unreadable": ""} for line in others)])
    save(tmp_path / "run" / "judge.json", {"calls": 300, "unreadable": 2, "example": None})
    assert read_run(tmp_path / "run", BENCHMARKS["mathvista"], 0, None).unreadable_verdicts == 3
    save(tmp_path / "run" / "judge.json", {"calls": 300, "unreadable": 3, "example": None})
    does_not_count(tmp_path / "run", "4", "300", "'I am overloaded.'", "1%", name="mathvista")
    for judge in ({}, {"calls": 3, "example": None}, [], None):
        save(tmp_path / "run" / "judge.json", judge)
        does_not_count(tmp_path / "run", name="mathvista")
    (tmp_path / "run" / "judge.json").unlink()
    does_not_count(tmp_path / "run", "judge.json", name="mathvista")
