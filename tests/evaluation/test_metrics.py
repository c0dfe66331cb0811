"""The `evaluate` modules under eval/metrics: the same verdicts as the rewards, loaded from their folders."""

import math

import evaluate
import pytest

from tests.support.marks import slow
from tests.support.verifier_cases import ARROW_CASES
from trl_vade.rewards.functions import accuracy_reward, metric_path, relaxed_accuracy_reward


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """`evaluate` copies a module that it loads into its cache, and would go on with an older copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.config.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


@pytest.fixture(scope="module")
def accuracy(own_cache, tmp_path_factory):
    return evaluate.load(metric_path("vade_accuracy"), cache_dir=str(tmp_path_factory.mktemp("metrics")))


def reference(kind, case, source=""):
    return {"answer": case.answer, "answer_type": kind, "choices": list(case.choices or ()), "source": source}


@pytest.mark.parametrize("relaxed", [slow(False), True])
def test_training_and_evaluation_agree_on_every_case(accuracy, relaxed):
    cases = [(kind, case) for kind, case in ARROW_CASES if case.relaxed == relaxed]
    predictions = [case.completion for _, case in cases]
    references = [reference(kind, case) for kind, case in cases]
    columns = {name: [row[name] or None for row in references] for name in references[0]}
    rewards = (relaxed_accuracy_reward if relaxed else accuracy_reward)(predictions, **columns)
    scored = [reward for reward in rewards if reward is not None]
    assert len(cases) > 15
    result = accuracy.compute(predictions=predictions, references=references, relaxed=relaxed)
    assert result["accuracy"] == pytest.approx(sum(scored) / len(scored))
    assert (result["scored"], result["unreadable"]) == (len(scored), len(rewards) - len(scored))


def test_rows_whose_answer_cannot_be_read_do_not_count(accuracy):
    row = {"answer": "about many", "answer_type": "number", "choices": [], "source": ""}
    with pytest.warns(UserWarning, match="do not fit their answer_type"):
        result = accuracy.compute(predictions=["5"], references=[row])
    assert math.isnan(result["accuracy"])
    assert (result["scored"], result["unreadable"]) == (0, 1)
