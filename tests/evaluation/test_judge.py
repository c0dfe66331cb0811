"""The judge: whether it is one, and what in its words is a verdict."""

import subprocess
import sys

import pytest

from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.errors import JudgeError
from trl_vade.evaluation import judge as module
from trl_vade.evaluation.judge import JUDGE_EXIT, Judge, verdict

SECRET = "sk-secret-4711"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("JUDGE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def unusable(judge, *names):
    """The probe of a stand-in refuses it with a message that names the `names`."""
    with refused(JudgeError, [judge.url, judge.model, *names], ["vllm serve", "--judge_url"]) as raised:
        Judge(judge.url, judge.model).probe()
    return str(raised.value)


def test_a_good_judge_passes_with_two_questions_and_gets_no_other_servers_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with LoopbackJudge() as judge:
        Judge(judge.url, judge.model).probe()
    assert judge.calls == 2
    assert judge.keys == {"EMPTY"}


FAULTS = {
    **{"empty": ["1", "''"], "nonsense": ["1", "'Perhaps a triangle, perhaps not.'"], "right": ["0", "'1'"]},
    **{"wrong": ["1", "'0'"], "status500": ["500", "EngineCore encountered an issue"], "slow": ["timed out"]},
    **{"dead": ["Connection error", "Server disconnected"], "wrong model": ["another/model"], "html": []},
    "no choices": [],
}


def test_what_is_no_good_judge_is_refused_by_its_fault(monkeypatch):
    monkeypatch.setattr(module, "PROBE_TIMEOUT", 0.5)
    with LoopbackJudge() as judge:
        for mode, names in FAULTS.items():
            judge.mode = mode
            unusable(judge, *names)
        judge.mode = "good"
        judge.fail_after(1, "empty")
        unusable(judge, "0")
    unusable(judge, "Connection refused")


def test_the_key_is_sent_and_nowhere_to_be_read(monkeypatch, capfd):
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    with LoopbackJudge(key=SECRET) as judge:
        Judge(judge.url, judge.model).probe()
        assert judge.keys == {SECRET}
        judge.key = "another"
        said = [unusable(judge, "401"), repr(Judge(judge.url, judge.model)), *capfd.readouterr()]
    assert not any(SECRET in text for text in said)  # although the server repeats it


READ = {
    1: [
        *("1", " 1\n", "[1]", "**1**", "`1`", "1.", "(1).", '"1."', "$1$", "Score: 1", "**Score:** 1", "Answer: [1]"),
        *("Final answer: 1", "Judgement: 1", "```\n1\n```", "1\n\nBecause both are 12.", "yes", "Yes."),
        *("Correct", "The prediction is 12.\n\nVerdict: 1", "<think>12?</think>\n1", "1\n1"),
    ],
    0: ["0", "[0].", "Score: 0", "no", "NO", "Incorrect.", "0\n\nThe prediction is 1.", "Both differ.\nScore: 0"],
    None: [
        *("", " \n ", "12", "10", "The prediction 12 is wrong", "1 or 0", "0/1", "-1", ".1", "0.1", "1.0", "1%", "01"),
        *("1\n0", "0\nNo, wait.\nyes", "Perhaps", "The answer is 1", "Not correct", "Model prediction: 1", "Score:"),
        *("x1", "1 0", "yes no", "The score is between 0\nand\n1 or 2"),
    ],
}


def test_a_verdict_is_read_only_where_it_stands_alone():
    wrong = {text: verdict(text) for found, texts in READ.items() for text in texts if verdict(text) != found}
    assert wrong == {}


# the guard inside the real lmms-eval: tests/lmms/test_guard.py


def test_a_dead_judge_ends_the_process_from_any_thread_with_the_reason_on_a_line_of_its_own():
    code = (
        "import sys, threading; from trl_vade.evaluation.judge import end_process; "
        "sys.stderr.write('\\r 10%|'); "
        "thread = threading.Thread(target=end_process, args=['gone:\\n nobody there']); "
        "thread.start(); thread.join(); print('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == JUDGE_EXIT
    assert ended.stderr.splitlines()[-1] == "trl_vade: gone: nobody there"
    assert ended.stdout == ""
