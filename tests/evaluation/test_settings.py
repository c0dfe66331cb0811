"""What of an evaluation is refused before a model is looked for. Of lmms-eval only the release is asked."""

from pathlib import Path

import pytest

from tests.support.evaluations import install_lmms_eval
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.settings import Evaluation, Generation, check, instruction_text, versions
from trl_vade.rewards.functions import INSTRUCTION

JUDGE = Judge("http://127.0.0.1:8000/v1", "Qwen/Qwen2.5-72B-Instruct")


def asked(**changes):
    return Evaluation(**{"model": "you/model", "output": Path("results"), "tasks": ["chartqa"]} | changes)


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """lmms-eval seems to be installed; see `install_lmms_eval`."""
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))


def test_an_evaluation_that_can_work_has_its_benchmarks_in_the_order_of_the_command():
    assert check(asked(tasks=FIVE, judge=JUDGE)) == [BENCHMARKS[name] for name in FIVE]
    chosen = check(asked(tasks=["scienceqa", "testbed", "scienceqa", "mixture"], data={"mixture": Path("rows")}))
    assert [benchmark.name for benchmark in chosen] == ["scienceqa", "testbed", "mixture"]
    assert check(asked(backend="server", server_url="http://127.0.0.1:8000/v1"))
    assert versions()["lmms-eval"] == "0.7.3"


def test_what_cannot_work_is_refused_and_said():
    for name, changes in (
        ("--tasks", {"tasks": ["chartqa", "mathvistas"]}),
        ("--tasks", {"tasks": []}),
        ("--judge_url", {"tasks": FIVE}),
        ("--data", {"tasks": ["mixture"]}),
        ("--data", {"data": {"scienceqa": Path("x")}}),
        ("--data", {"tasks": ["testbed"], "data": {"testbed": Path("x")}}),  # its score would be told as the testbed's
        ("--server_url", {"backend": "server"}),
        ("--server_url", {"server_url": "http://host/v1"}),
    ):
        with refused(ConfigurationError, [name]):
            check(asked(**changes))


def test_another_release_of_lmms_eval_is_refused_since_its_faults_are_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "other", "0.8.0"))
    with refused(ConfigurationError, ["lmms-eval", "0.8.0"], ["0.7.3", 'pip install "trl-vade[eval]"']):
        check(asked())


def test_a_benchmark_is_decoded_as_in_the_paper_unless_the_user_says_how():
    mathvista, chartqa = BENCHMARKS["mathvista"], BENCHMARKS["chartqa"]
    sampled = "temperature 0.6, top-p 0.95"
    assert Generation().named(mathvista, "vllm") == f"{sampled}, repetition penalty 1"
    assert Generation().named(chartqa, "vllm") == "greedy, repetition penalty 1"
    assert Generation(top_k=20).named(mathvista, "vllm") == f"{sampled}, top-k 20, repetition penalty 1"
    assert Generation(top_k=20).named(mathvista, "server") == f"{sampled}, top-k and penalties of the server"
    assert asked().seeds_of(mathvista) == (0, 1, 2, 3)
    assert asked().seeds_of(chartqa) == (0,)
    assert asked(generation=Generation(temperature=0.6)).seeds_of(chartqa) == (0, 1, 2, 3)


def test_the_instruction_of_the_mixture_has_a_name():
    assert [instruction_text(text) for text in ("mixture", "Think.", None)] == [INSTRUCTION, "Think.", None]
