"""The benchmarks: what is known of each, which names pass, and the paper's table."""

import re
from statistics import fmean

import pytest

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE, PAPER, find_benchmarks


def test_the_papers_table_has_its_averages_and_each_method_once_for_each_size():
    assert [round(fmean(row.scores), 2) for row in PAPER] == [
        *(58.63, 61.82, 63.67, 64.75, 62.56, 64.37, 64.57),
        *(50.65, 55.56, 58.51, 57.32, 56.01, 55.10, 56.38),
    ]
    assert len({(row.model, row.method) for row in PAPER}) == 14
    assert len({row.method for row in PAPER}) == 7


def test_the_five_of_the_paper_are_benchmarks_with_data_on_the_hub_and_maths_is_judged():
    assert all(BENCHMARKS[name].dataset for name in FIVE)
    assert [BENCHMARKS[name].judged for name in FIVE] == [True, True, True, False, False]
    assert [BENCHMARKS[name].greedy for name in FIVE] == [False, False, False, True, True]
    assert [BENCHMARKS[name].questions for name in FIVE] == [1000, 3940, 3040, 2017, 2500]


@pytest.mark.parametrize(
    ("name", "runs", "whole"), [("mathvista", 4, 14), ("scienceqa_img", 1, 14), ("chartqa", 1, 14)]
)
def test_the_papers_figures_are_of_as_many_questions_and_runs_as_the_defaults_have(name, runs, whole):
    """Its ScienceQA-IMG and ChartQA are one greedy run, and its MathVista is four different ones."""
    figures = [row.scores[FIVE.index(name)] for row in PAPER]

    def among(count):
        return sum(abs(100 * round(figure * count / 100) / count - figure) < 0.00501 for figure in figures)

    assert among(runs * BENCHMARKS[name].questions) == whole
    assert runs == 1 or among(BENCHMARKS[name].questions) < whole / 2
    assert name != "scienceqa_img" or among(BENCHMARKS["scienceqa"].questions) < whole


def test_a_benchmark_is_known_by_its_own_name_and_has_a_task_of_its_own():
    for name, benchmark in BENCHMARKS.items():
        assert (benchmark.name, benchmark.task, benchmark.key) == (name, f"vade_{name}", f"{benchmark.metric},none")
        assert re.fullmatch(r"[a-z_]+", name)  # the folder of a run and the file of its samples are named after it


def test_benchmarks_come_in_the_order_of_the_command_and_each_once_and_no_others_are_known():
    chosen = find_benchmarks(["testbed", "chartqa", "testbed"])
    assert [benchmark.name for benchmark in chosen] == ["testbed", "chartqa"]
    for names in (["chartqa", "charrtqa"], ["ChartQA"], [""], []):
        with refused(ConfigurationError, ["--tasks", *names[-1:]], BENCHMARKS):
            find_benchmarks(names)
