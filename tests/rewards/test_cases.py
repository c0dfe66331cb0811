"""Ordinary answers are judged as a careful person judges them; `python -m eval.benchmarks.rewards` has the figures."""

import pytest

from eval.benchmarks.rewards import ours, read_cases, table, verdicts
from tests.support.marks import slow_but
from trl_vade.rewards.verifiers import ANSWER_TYPES

MOST_DISAGREEMENTS = {"develop": 0.01, "report": 0.01, "later": 0.01, "stranger": 0.02, "fresh": 0.025}


@pytest.mark.parametrize("half", slow_but(["fresh"], MOST_DISAGREEMENTS))
@pytest.mark.filterwarnings("ignore:.*do not fit their answer_type")
def test_hardly_a_verdict_differs_from_that_of_a_person(half):
    cases = read_cases(half)
    given = verdicts(ours, cases)
    differing = [case for case, verdict in zip(cases, given, strict=True) if verdict != case["verdict"]]
    assert len(differing) <= MOST_DISAGREEMENTS[half] * len(cases), table(cases, given)
    # A percentage for a number above 1, and a year within ChartQA's 5 %: both by rule. Two sentences state a step.
    earned = [case for case in differing if not case["verdict"]]
    odd = [case for case in earned if "%" not in case["completion"] and case.get("source") != "ChartQA"]
    assert len(odd) <= (2 if half == "fresh" else 0), odd


def test_the_table_of_cases_has_each_kind_and_no_case_twice():
    cases = read_cases()
    told = [repr({**case, "half": "", "kind": "", "verdict": ""}) for case in cases]
    assert len(set(told)) == len(cases) > 4400
    for half in MOST_DISAGREEMENTS:
        kinds = {(case["kind"], case["verdict"]) for case in read_cases(half)}
        assert kinds >= {(kind, verdict) for kind in ANSWER_TYPES for verdict in (0.0, 1.0)}
