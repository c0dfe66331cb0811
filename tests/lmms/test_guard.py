"""The guard inside the real lmms-eval 0.7.3: its own judges of the three tasks against the stand-in of a server."""

import json
import shutil
import sys

import pytest

from tests.lmms.conftest import SECRET
from tests.support.refusals import refused
from trl_vade.evaluation import judge as judge_module
from trl_vade.evaluation import tasks as scoring
from trl_vade.evaluation.judge import JudgeGuard

pytestmark = pytest.mark.lmms
LONG = "and so on, " * 200


class Ended(BaseException):
    """The end of the process, which lmms-eval cannot catch."""


@pytest.fixture
def dead(monkeypatch):
    """The reasons for which the guard would have ended the process."""
    reasons = []

    def end(reason):
        reasons.append(reason)
        raise Ended

    monkeypatch.setattr(judge_module, "end_process", end)
    monkeypatch.setattr(judge_module, "TIMEOUT", 5.0)
    return reasons


@pytest.fixture
def guard(lmms, server, dead):
    server.mode, server.delay = "good", 60.0
    guard = JudgeGuard(delay=0.0)
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
    assert dead == []


@pytest.mark.parametrize("task", [mathverse, mathvision])
def test_a_text_with_a_1_in_it_is_no_verdict(lmms, guard, server, dead, task):
    server.mode, server.words = "nonsense", "The prediction 12 is wrong"
    assert task(lmms, "It is 13.") == 0  # lmms-eval's own reading is 1
    assert guard.report() == {"calls": 1, "unreadable": 1, "example": "The prediction 12 is wrong"}
    assert dead == []


@TASKS
def test_a_judge_that_dies_or_hangs_is_an_end_and_no_zero(lmms, guard, server, dead, task, monkeypatch):
    deaths = {"dead": ("APIConnectionError", 5), "status500": ("EngineCore", 5), "empty": ("an empty answer", 2)}
    for mode, (cause, attempts) in (deaths | {"slow": ("timed out", 5)}).items():
        monkeypatch.setattr(judge_module, "TIMEOUT", 0.3 if mode == "slow" else 5.0)
        server.mode = "good"
        task(lmms, "It is 12.")
        server.mode, before = mode, server.calls
        with pytest.raises(Ended):
            task(lmms, "It is still 12.")
        assert cause in dead[-1]
        assert server.url in dead[-1]
        assert server.calls == before + attempts


@TASKS
def test_a_judge_that_restarts_is_waited_for(lmms, guard, server, dead, task):
    server.mode = "status500"
    server.fail_after(4, "good")
    assert int(task(lmms, "It is 12.")) == {mathvista: 12}.get(task, 1)
    assert guard.report() == {"calls": 1, "unreadable": 0, "example": None}
    assert dead == []


@TASKS
@pytest.mark.parametrize(("mode", "example"), [("long refused", "Please reduce the length"), ("long empty", "empty")])
def test_one_question_that_is_not_answered_is_unreadable(lmms, guard, server, dead, task, mode, example):
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
    with pytest.raises(Ended):
        mathverse(lmms, "It is 12.")
    assert server.calls == before + 1
    assert "401" in dead[0]
    assert SECRET not in dead[0]


def mathvista_row(**changes):
    row = {"question_type": "multi_choice", "answer_type": "text", "choices": ["8", "123"], "answer": "8"}
    return row | {"query": "Which?", "pid": "0", "metadata": {}, "precision": float("nan")} | changes


def mathvista_scores(row, response):
    """By lmms-eval alone, and with the correction. Where the first is right: drop the correction."""
    from lmms_eval.tasks.mathvista.utils import mathvista_process_results as stock

    alone = stock(row, [response])["llm_as_judge_eval"]["true_false"]
    return [alone, scoring.mathvista(row, [response])["llm_as_judge_eval"] == 1]


@pytest.mark.parametrize("words", ["", "The response does not provide a final answer.", "None"])
def test_where_no_answer_is_found_no_choice_is_taken_although_lmms_eval_takes_the_nearest(lmms, guard, server, words):
    server.mode, server.words = "nonsense", words
    nearest = {"": "8", "None": "Nine"}.get(words, "The response that provides an answer.")
    row = mathvista_row(choices=["123456, and more words than any of them", nearest], answer=nearest)
    assert mathvista_scores(row, "It is so" if words else " ") == [True, False]
    assert mathvista_scores(row, nearest) == [True, True]


@pytest.mark.parametrize(("answer", "places"), [("1.5", 1.0), ("0.25", 2.0)])
def test_a_right_float_is_right_although_lmms_eval_cannot_round_to_a_float_of_places(lmms, answer, places):
    row = mathvista_row(question_type="free_form", answer_type="float", choices=None, answer=answer, precision=places)
    assert mathvista_scores(row, answer) == [False, True]
    assert mathvista_scores(row, answer + "5") == [False, False]


CODE = (
    *("f(1)", "a_{1}", r"f'_{print(1)}", "(f(1), 2)", "__import__('os').system('id')", r"\boxed{abs(-8)}"),
    "[abs(1),2]",
    *(r"\frac{1}{2}", "8", "3+5", r"2\times 4", "10^{10^{10}}", "9" * 5000, "(" * 5000, "the answer is 8."),
)


@pytest.fixture(scope="module")
def executed():
    """The code of texts that is executed, by an audit hook, which stays."""
    found = []

    def note(event, args):
        if event == "exec" and getattr(args[0], "co_filename", "") == "<string>":
            found.append(args[0])

    sys.addaudithook(note)
    return found


def test_no_answer_is_executed_by_any_scorer_although_lmms_eval_does(lmms, guard, executed, monkeypatch):
    from latex2sympy2_extended import latex2sympy
    from lmms_eval.tasks.mathvision import eval_utils

    table = {"type": "human_test", "answer": "8", "options": [], "choices": ["7", "8"]}
    chosen = {"answer": "B", "options": ["7", "f(1)"]}
    scorers = {
        scoring.mathvision_rules: [table, table | chosen],
        scoring.mathvision: [table | {"question": "What is 7 + 1?"}],
        scoring.mathverse: [table | {"question_for_eval": "What is 7 + 1?"} | dict.fromkeys(VERSE, "")],
        scoring.mathvista: [mathvista_row(), mathvista_row(question_type="free_form", answer_type="integer")],
        scoring.chartqa: [table],
        scoring.scienceqa: [table | {"answer": 1}],
    }
    for score, rows in scorers.items():
        score(rows[0], ["8"])  # what is imported at the first call
        executed.clear()
        for text in CODE:
            for row in rows:
                score(row, [text])
                score(row, [f"<answer>{text}</answer>"])
        assert executed == [], score
    monkeypatch.setattr(eval_utils, "latex2sympy", latex2sympy)
    monkeypatch.delattr(eval_utils, "eval")
    scoring.mathvision_rules(table, ["f(1)"])
    assert any("f" in code.co_names for code in executed)  # no longer: drop `close_eval`


VERSE = ("sample_index", "problem_index", "problem_version", "question", "question_type", "metadata")
VERSE += ("query_wo", "query_cot")


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ("8", ["8", "8.0", "8.004", "(8)", "2^{3}", r"2\times 4", "3+5", r"\frac{16}{2}"], ["9", "8.006"]),
        ("8", [r"\boxed{8}"], []),
        ("1/2", ["0.5", r"\dfrac{1}{2}", "50%", "2^{-1}", ".5"], [r"\frac{1}{3}", "1", "2"]),
        (r"2\frac{1}{2}", ["2.5", r"\frac{5}{2}", r"10\div 4"], ["1", "2.6"]),
        ("(1,2)", ["(1,2)", r"\left(1,2\right)", "(2-1, 4/2)"], ["(2,1)", "[1,2]", "1,2"]),
        ("1000", ["1,000", "10^3", "1000.0"], ["1", "100", "1000000"]),
        ("-4", ["-2^2", "2-6", "--4-8", "-(4)"], ["4", "(-2)^2"]),
        (r"45^{\circ}", ["45", r"45^\circ"], ["54"]),
        (r"2\sqrt{5}", [r"2\sqrt{5}"], [r"\sqrt{20}", "4.47"]),
        ("8", [], ["f(1)", "10^{10^{10}}", "1/0", "(-8)^{1/2}", "8)", "(8", "8 8", "", "+", "0^{-1}", "8^"]),
    ],
)
def test_the_rules_find_in_arithmetic_what_they_found_with_eval(lmms, reference, right, wrong):
    row = {"answer": reference, "options": []}
    score = {text: scoring.mathvision_rules(row, [text])["mathvision_standard_eval"] == 1 for text in right + wrong}
    assert score == dict.fromkeys(right, True) | dict.fromkeys(wrong, False)


@pytest.fixture
def load(monkeypatch):
    """transformers' loading of Qwen2.5-VL, as lmms-eval's process has it."""
    from transformers import Qwen2_5_VLForConditionalGeneration as Model

    from trl_vade.evaluation.corrections import load_whole_models

    stock = Model.from_pretrained

    def load(folder, penalty=1.0):
        monkeypatch.setattr(Model, "from_pretrained", stock)
        load_whole_models(penalty)
        return Model.from_pretrained(folder)

    return load


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
    """Such as Qwen2.5-VL's repetition penalty, which no other backend would apply."""
    from trl_vade.testbed import load_testbed_model

    folder = shutil.copytree(load_testbed_model(progress=False), tmp_path / "model")
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | {"repetition_penalty": 1.3}))
    for penalty in (1.0, 1.05):
        found = load(folder, penalty).generation_config
        assert (found.repetition_penalty, found.eos_token_id) == (penalty, settings["eos_token_id"])
