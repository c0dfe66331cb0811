"""The guard inside the real lmms-eval 0.7.3: its own judges of the three tasks against the stand-in of a server."""

import json
import shutil
import threading
from types import SimpleNamespace

import pytest

from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.lmms import judge_guard
from trl_vade.evaluation.lmms.judge_guard import JudgeGuard

pytestmark = pytest.mark.lmms

SECRET = "sk-secret-4711"
LONG = "and so on, " * 200


@pytest.fixture(scope="module")
def server():
    with LoopbackJudge(key=SECRET) as judge:
        yield judge


@pytest.fixture(scope="module")
def lmms(server):
    """lmms-eval's own scoring of the three tasks, imported with the judge's variables, as its own process does it."""
    with pytest.MonkeyPatch.context() as patch:
        judge = Judge.of(server.url, server.model)
        for name, value in judge.environment({"JUDGE_API_KEY": SECRET, "HTTP_PROXY": "http://127.0.0.1:1"}).items():
            patch.setenv(name, value)
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # where nobody is
        from lmms_eval.llm_judge.base import ServerInterface
        from lmms_eval.llm_judge.providers.openai import OpenAIProvider
        from lmms_eval.tasks.mathverse.mathverse_evals import MathVerseEvaluator
        from lmms_eval.tasks.mathvision.utils import mathvision_gpt_eval_process_results as mathvision
        from lmms_eval.tasks.mathvista.mathvista_evals import MathVistaEvaluator

        stock = OpenAIProvider.evaluate, ServerInterface.evaluate_binary
        yield SimpleNamespace(
            mathvista=MathVistaEvaluator(),
            mathverse=MathVerseEvaluator(),
            mathvision=mathvision,
        )
        OpenAIProvider.evaluate, ServerInterface.evaluate_binary = stock


@pytest.fixture
def dead(monkeypatch):
    """The reasons for which the guard would have ended the process."""
    reasons = []
    monkeypatch.setattr(judge_guard, "end_process", reasons.append)
    monkeypatch.setattr(judge_guard, "TIMEOUT", 5.0)
    return reasons


@pytest.fixture
def guard(lmms, server, dead):
    server.mode, server.delay = "good", 60.0
    guard = JudgeGuard(delay=0.0, patience=0.2)
    guard.install()
    return guard


def mathverse(lmms, prediction):
    return lmms.mathverse.score_answer("What is 7 + 5?", "12", prediction)


def mathvision(lmms, prediction):
    row = {"question": "What is 7 + 5?", "answer": "12"}
    return lmms.mathvision(row, [prediction])["llm_as_judge_eval"]


def mathvista(lmms, response):
    query = "Hint: Please answer the question requiring an integer answer.\nQuestion: What is 7 + 5?"
    return lmms.mathvista.extract_answer(response, {"question_type": "free", "answer_type": "integer", "query": query})


TASKS = pytest.mark.parametrize("task", [mathvista, mathverse, mathvision])


def test_a_good_judge_is_heard_and_counted(lmms, guard, dead):
    assert [mathverse(lmms, text) for text in ("It is 12.", "It is 13.")] == [1, 0]
    assert [mathvision(lmms, text) for text in ("<think>13?</think>It is 12.", "It is 13.")] == [1, 0]
    assert mathvista(lmms, "It is 12.") == "12"
    assert mathvista(lmms, "12") == "12"  # no judge is asked
    assert guard.report() == {"calls": 5, "unreadable": 0, "example": None}
    guard.reset()
    assert guard.report()["calls"] == 0
    assert dead == []


@pytest.mark.parametrize("task", [mathverse, mathvision])
def test_a_text_with_a_1_in_it_is_no_verdict(lmms, guard, server, dead, task):
    server.mode, server.words = "nonsense", "The prediction 12 is wrong"
    assert task(lmms, "It is 13.") == 0  # lmms-eval's own reading is 1
    assert guard.report() == {"calls": 1, "unreadable": 1, "example": "The prediction 12 is wrong"}
    assert dead == []


@TASKS
@pytest.mark.parametrize(
    ("mode", "cause", "attempts"),
    [("dead", "APIConnectionError", 5), ("status500", "EngineCore", 5), ("empty", "an empty answer", 2)],
)
def test_a_judge_that_dies_is_an_end_and_no_zero(lmms, guard, server, dead, task, mode, cause, attempts):
    task(lmms, "It is 12.")
    server.fail_after(0, mode)
    before = server.calls
    task(lmms, "It is still 12.")
    assert len(dead) == 1
    assert cause in dead[0]
    assert server.url in dead[0]
    assert server.calls == before + attempts
    task(lmms, "It is 12.")  # what other threads ask until the process has ended
    assert (len(dead), server.calls) == (1, before + attempts)


@TASKS
def test_a_judge_that_restarts_is_waited_for(lmms, guard, server, dead, task):
    server.mode = "status500"
    server.fail_after(4, "good")
    assert int(task(lmms, "It is 12.")) == {mathvista: 12}.get(task, 1)
    assert guard.report() == {"calls": 1, "unreadable": 0, "example": None}
    assert dead == []


@TASKS
def test_a_judge_that_hangs_gets_two_attempts(lmms, guard, server, dead, task, monkeypatch):
    monkeypatch.setattr(judge_guard, "TIMEOUT", 0.3)
    before, server.mode = server.calls, "slow"
    task(lmms, "It is 12.")
    assert len(dead) == 1
    assert "timed out" in dead[0]
    assert server.calls == before + 2


@TASKS
@pytest.mark.parametrize(("mode", "example"), [("long refused", "Please reduce the length"), ("long empty", "empty")])
def test_one_question_that_the_judge_cannot_answer_is_unreadable_and_no_end(
    lmms, guard, server, dead, task, mode, example
):
    server.mode = mode
    server.limit = 3600 if task is mathvista else 2200  # its examples are long already
    assert task(lmms, f"It is 12, {LONG}12.") == (0 if task is not mathvista else "12" if "refused" in mode else "")
    report = guard.report()
    assert report["unreadable"] == 1  # MathVista asks again, and shortens what was refused
    assert example in report["example"]
    assert dead == []


def test_a_wrong_key_is_an_end_at_once_and_is_not_repeated(lmms, guard, server, dead, monkeypatch):
    monkeypatch.setattr(server, "key", "another")
    before = server.calls
    mathverse(lmms, "It is 12.")
    assert server.calls == before + 1
    assert "401" in dead[0]
    assert SECRET not in dead[0]


def test_a_second_guard_replaces_the_first_and_four_threads_are_counted(lmms, guard, server, dead):
    second = JudgeGuard(delay=0.0)
    second.install()
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(mathverse(lmms, f"It is {n}.") for n in range(8, 16)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found) == 4
    assert second.report() == {"calls": 32, "unreadable": 0, "example": None}
    assert guard.report()["calls"] == 0


# -------------------------------------------------------------- what else `lmms_runner` and its tasks mend


def test_an_answer_that_says_nothing_is_wrong_in_mathvista_although_lmms_eval_takes_the_shortest_choice(lmms, guard):
    from lmms_eval.tasks.mathvista.utils import mathvista_process_results

    from trl_vade.evaluation.lmms.scoring import mathvista as ours

    row = {"question_type": "multi_choice", "answer_type": "text", "choices": ["8", "123"], "answer": "8"}
    row |= {"query": "Which?", "pid": "0", "metadata": {}}
    assert mathvista_process_results(row, [" "])["llm_as_judge_eval"]["true_false"]  # no longer: drop the correction
    assert not ours(row, [" "])["llm_as_judge_eval"]["true_false"]
    assert ours(row, ["<answer>8</answer>"])["llm_as_judge_eval"]["true_false"]


def test_an_answer_whose_value_never_comes_to_an_end_is_wrong_and_the_next_one_is_scored(monkeypatch):
    from trl_vade.evaluation.lmms import scoring as lmms_scoring

    monkeypatch.setattr(lmms_scoring, "RULES_SECONDS", 2.0)
    row = {"answer": "8", "options": []}
    scores = [
        lmms_scoring.mathvision_rules(row, [text])["mathvision_standard_eval"]["scores"]
        for text in ("<answer>10^{10^{10}}</answer>", "<answer>8</answer>", "9")
    ]
    assert scores == [[False], [True], [False]]


@pytest.fixture
def load(monkeypatch):
    """transformers' loading of Qwen2.5-VL, as lmms-eval's process has it."""
    from transformers import Qwen2_5_VLForConditionalGeneration as Model

    from trl_vade.evaluation.lmms.runner import _load_whole_models

    monkeypatch.setattr(Model, "from_pretrained", Model.from_pretrained)
    _load_whole_models()
    return Model.from_pretrained


def test_a_checkpoint_that_lacks_weights_is_no_model(load, tmp_path):
    from safetensors.torch import load_file, save_file

    from trl_vade.errors import EvaluationError
    from trl_vade.testbed import load_testbed_model

    folder = shutil.copytree(load_testbed_model(progress=False), tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors[next(name for name in tensors if "layers.0.mlp" in name)]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with refused(EvaluationError, ["1"]) as raised:
        load(folder)
    assert "layers.0.mlp" in str(raised.value)


def test_of_the_models_own_settings_of_generation_its_ends_alone_are_left(load, tmp_path):
    from trl_vade.testbed import load_testbed_model

    folder = shutil.copytree(load_testbed_model(progress=False), tmp_path / "model")
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | {"repetition_penalty": 1.3}))
    found = load(folder).generation_config
    assert found.repetition_penalty in (None, 1.0)
    assert found.eos_token_id == settings["eos_token_id"]
