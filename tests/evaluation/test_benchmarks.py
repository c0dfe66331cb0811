"""The benchmarks: what is known of each, which names pass, and the paper's table."""

from statistics import fmean

from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, PAPER, find_benchmarks


def test_the_papers_table_has_its_averages():
    assert [round(fmean(scores), 2) for scores in PAPER.values()] == [
        *(58.63, 61.82, 63.67, 64.75, 62.56, 64.37, 64.57),
        *(50.65, 55.56, 58.51, 57.32, 56.01, 55.10, 56.38),
    ]


def test_benchmarks_come_in_the_order_of_the_command_and_each_once_and_no_others_are_known():
    chosen = find_benchmarks(["testbed", "chartqa", "testbed"])
    assert [benchmark.name for benchmark in chosen] == ["testbed", "chartqa"]
    for names in (["chartqa", "charrtqa"], ["ChartQA"], [""], []):
        with refused(ConfigurationError, ["--tasks", *names[-1:]], BENCHMARKS):
            find_benchmarks(names)
