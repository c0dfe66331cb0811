"""The rewards and the benchmarks' own scorers, in the real lmms-eval, on the same answers."""

import pytest

from eval.benchmarks.readers import cases, compared, prepare

pytestmark = pytest.mark.lmms
PLAIN = ("the letter", "the number", "the label", "the expression", "within 5 %", "more digits")


@pytest.fixture(scope="module")
def rows(lmms):
    """By benchmark and kind: answers, agreements, and the errors of the reward and of the benchmark."""
    evaluator = type(lmms.mathvista)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "extract_answer", evaluator.extract_answer)
        prepare()
        return {(benchmark, kind): figures for benchmark, kind, *figures, _ in compared(list(cases()))}


def test_plain_answers_are_read_alike_and_rightly_by_both(rows):
    plain = {key: figures for key, figures in rows.items() if key[1] in PLAIN}
    assert {benchmark for benchmark, _ in plain} == {"scienceqa", "chartqa", "mathvista", "mathvision_rules"}
    assert [key for key, (answers, agree, *errors) in plain.items() if agree < answers or any(errors)] == []


def test_no_wrong_answer_is_right_for_the_reward_and_it_misses_fewer_than_the_benchmarks(rows):
    assert [key for key, figures in rows.items() if figures[2]] == []
    assert sum(figures[3] for figures in rows.values()) < sum(figures[5] for figures in rows.values()) / 2
