"""What is refused before a model is looked for, and which model is evaluated: found, and known again."""

import os
from pathlib import Path

import pytest

from tests.support.evaluations import FILES, install_lmms_eval, write
from tests.support.hub import offline
from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.measuring import model_arguments
from trl_vade.evaluation.settings import EvaluatedModel, Evaluation, Generation, check, find_model

JUDGE = Judge("http://127.0.0.1:8000/v1", "Qwen/Qwen2.5-72B-Instruct")


def asked(**changes):
    return Evaluation(**{"model": "you/model", "output": Path("results"), "tasks": ["chartqa"]} | changes)


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """lmms-eval seems to be installed; see `install_lmms_eval`."""
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))


def test_what_cannot_work_is_refused_and_said():
    for name, changes in (
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


def find(name, backend="transformers", **options):
    return find_model(Evaluation(str(name), Path("out"), backend=backend, **options))


def test_a_folder_is_known_by_its_name_and_its_files(tmp_path, monkeypatch):
    folder = write(tmp_path / "model", FILES)
    monkeypatch.chdir(folder)
    found = find(folder)
    assert (found.name, found.folder, found.revision) == ("model", folder.resolve(), None)
    beside = ["trainer_state.json", "vade_posterior.safetensors", "results.json", "README.md", "evaluation.json"]
    write(folder, dict.fromkeys(beside, b"{}"))
    write(folder / "checkpoint-8", {"model.safetensors": b"8"})
    assert find(".") == find(folder, "vllm") == found  # whatever a run or an evaluation leaves there
    os.utime(folder / "model.safetensors", (1, 1))
    longer = find(write(folder, {"chat_template.jinja": b"{{ other messages }}"}))
    assert len({found.fingerprint, find(folder).fingerprint, longer.fingerprint}) == 2
    assert len(found.fingerprint) == 16


def test_what_is_no_model_or_none_for_the_backend_is_refused(tmp_path, text_model_path):
    with refused(EvaluationError, [tmp_path, "config.json"]):
        find(tmp_path)
    with refused(ConfigurationError, [text_model_path, "'qwen2'"], ["--backend vllm", "--backend server"]):
        find(text_model_path)
    assert find(text_model_path, "vllm").folder == Path(text_model_path).resolve()


def test_of_a_model_of_the_hub_the_commit_is_known_and_a_commit_of_results_makes_no_other_model(hub, monkeypatch):
    found = hub.add_repo("you/model")
    found.tags["v1"] = found.add("main", "first", "", FILES, lfs=["model.safetensors"])
    more = {"checkpoint-8/model.safetensors": b"8", "vade_evaluation/a/results.json": b"{}", "README.md": b"# Mine"}
    found.add("main", "second", "", FILES | more, lfs=["model.safetensors"])
    newest, first = find("you/model"), find("you/model", revision="v1")
    assert (newest.name, newest.revision, first.revision) == ("you/model", found.branches["main"], found.tags["v1"])
    assert newest.fingerprint == first.fingerprint
    assert not [line for line in hub.requests if "checkpoint" in line or "vade_evaluation" in line]
    with offline():
        assert find("you/model") == newest  # from the cache
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_mine")
    with refused(EvaluationError, ["you/nothing"]) as raised:
        find("you/nothing")
    assert "hf_secret_of_mine" not in str(raised.value)


def test_a_served_model_is_known_by_its_name_and_has_to_be_served():
    with LoopbackJudge(model="mine") as server:
        served = {"backend": "server", "server_url": server.url}
        assert find("mine", **served) == EvaluatedModel("mine", None, None, "mine")
        with refused(EvaluationError, ["other", "mine"]):
            find("other", **served)
    with refused(EvaluationError, ["mine", "Connection refused"]):
        find("mine", **served)


def test_each_backend_is_given_the_model_under_its_own_name_and_vllm_never_executes_its_code():
    own = {
        "transformers": {"pretrained": "/m", "batch_size": 8},
        "vllm": {"model": "/m", "batch_size": 8, "trust_remote_code": False, "max_new_tokens": 1},
        "server": {"model_version": "mine", "base_url": "http://h/v1", "num_concurrent": 8},
    }
    for backend, arguments in own.items():
        url = "http://h/v1" if backend == "server" else None
        evaluation = Evaluation("m", Path("out"), backend=backend, server_url=url, model_args={"max_pixels": 9})
        model = EvaluatedModel("mine", None if url else Path("/m"), None, "ab")
        assert model_arguments(evaluation, model) == arguments | {"max_pixels": 9}
        for name in (next(iter(arguments)), "api_key"):
            given = Evaluation("m", Path("out"), backend=backend, model_args={name: "sk-secret"})
            with refused(ConfigurationError, ["--model_args", name]) as raised:
                model_arguments(given, model)
            assert "sk-secret" not in str(raised.value)
