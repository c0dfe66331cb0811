"""The benchmarks: what is known of each, which names pass, and the paper's table."""

import re
from statistics import fmean

import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE, PAPER, Benchmark, find_benchmarks


def test_the_papers_averages_are_the_means_of_its_five_figures():
    assert [round(fmean(row.scores), 2) for row in PAPER] == [
        *(58.63, 61.82, 63.67, 64.75, 62.56, 64.37, 64.57),
        *(50.65, 55.56, 58.51, 57.32, 56.01, 55.10, 56.38),
    ]


def test_the_papers_rows_are_one_base_and_three_methods_by_two_algorithms_for_each_size():
    rows = [(row.model, row.algorithm, row.method) for row in PAPER]
    assert len(set(rows)) == len(rows) == 14
    assert {row.method for row in PAPER} == {"base", "vanilla", "DAPO", "VADE"}
    assert {row.algorithm for row in PAPER if row.method != "base"} == {"GRPO", "GSPO"}


def test_the_five_of_the_paper_are_benchmarks_with_data_on_the_hub_and_maths_is_judged():
    assert all(BENCHMARKS[name].dataset for name in FIVE)
    assert [BENCHMARKS[name].judged for name in FIVE] == [True, True, True, False, False]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_known_by_its_own_name_and_has_a_task_of_its_own(name):
    benchmark = BENCHMARKS[name]
    assert benchmark.name == name
    assert benchmark.task == f"vade_{name}"
    assert benchmark.key == f"{benchmark.metric},none"
    # The folder of a run and the file of its samples are named after it.
    assert re.fullmatch(r"[a-z_]+", name)


def test_benchmarks_come_in_the_order_of_the_command_and_each_once():
    chosen = find_benchmarks(["testbed", "chartqa", "testbed"])
    assert [benchmark.name for benchmark in chosen] == ["testbed", "chartqa"]


@pytest.mark.parametrize("names", [["chartqa", "charrtqa"], ["ChartQA"], [""], []])
def test_an_unknown_benchmark_and_none_are_refused_with_the_list_of_those_there_are(names):
    with refused(ConfigurationError, ["--tasks", *names[-1:]], BENCHMARKS):
        find_benchmarks(names)


@pytest.mark.parametrize(
    ("name", "sample", "score"),
    [
        ("mathvista", {"llm_as_judge_eval": {"true_false": True, "prediction": "3"}}, 1.0),
        ("mathvista", {"llm_as_judge_eval": {"true_false": False, "prediction": None}}, 0.0),
        ("mathverse", {"gpt_eval_score": 1}, 1.0),
        ("mathvision", {"llm_as_judge_eval": 0.0}, 0.0),
        ("scienceqa", {"exact_match": 1.0}, 1.0),
        ("chartqa", {"relaxed_overall": 0.0, "relaxed_human_split": 1.0}, 0.0),
        ("mathvision_rules", {"mathvision_standard_eval": {"response": ["A"], "scores": [True]}}, 1.0),
        ("scienceqa_img", {"exact_match": 0.0}, 0.0),
        ("testbed", {"exact_answer": 1.0}, 1.0),
        ("mixture", {"vade_accuracy": {"prediction": "x", "reference": {}, "verdict": 1.0}}, 1.0),
        ("mixture", {"vade_accuracy": {"prediction": "x", "reference": {}, "verdict": None}}, None),
    ],
)
def test_the_score_of_a_question_is_where_the_task_writes_it(name, sample, score):
    assert BENCHMARKS[name].question_score(sample) == score


@pytest.mark.parametrize(
    ("name", "sample", "error"),
    [
        ("chartqa", {}, KeyError),
        ("mathvista", {"llm_as_judge_eval": {}}, KeyError),
        ("mathvista", {"llm_as_judge_eval": None}, TypeError),
        ("mathvision_rules", {"mathvision_standard_eval": {"scores": []}}, IndexError),
    ],
)
def test_a_line_without_the_score_is_an_error_and_not_a_wrong_answer(name, sample, error):
    with pytest.raises(error):
        BENCHMARKS[name].question_score(sample)


def test_a_benchmark_without_a_path_has_its_score_in_the_metric_itself():
    assert Benchmark("own", "Own", "accuracy", 1.0).question_score({"accuracy": 0.5}) == 0.5
