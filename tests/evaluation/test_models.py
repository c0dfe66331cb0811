"""Which model is evaluated: found in a folder, on the Hub or on a server, and known again."""

import os
from pathlib import Path

from tests.support.evaluations import FILES, write
from tests.support.hub import offline
from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.evaluation.models import EvaluatedModel, find_model, model_arguments
from trl_vade.evaluation.settings import Evaluation


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


def test_a_served_model_is_known_by_its_name_and_has_to_be_served(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # where nobody is
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
