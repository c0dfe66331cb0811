"""Results of an evaluation on a stand-in for the Hub: one commit with card, raw results and leaderboard entries."""

import json
import logging
from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard, constants
from trl_vade.evaluation.publishing.leaderboards import declared_tasks
from trl_vade.evaluation.publishing.publish import publish_results
from trl_vade.evaluation.results.table import Results, digest_of

from tests.support.hub import offline
from tests.support.refusals import refused, says
from trl_vade.errors import EvaluationError, HubError, HubOfflineError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.models import fingerprint
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.failures import HTTP_ERROR

EXAMPLE = Path(__file__).parents[3] / "model_cards" / "model_example.md"
COMMIT = "POST /api/models/you/run/commit"
CARD = "---\nlicense: mit\nlanguage: en\n---\n# My run\n\nTrained for a week.\n"
SERVED = "0123abcd4567ef00"
SECRET = "hf_" + "Secret5" * 4


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(hub_module, "PATIENCE", (0.0, 0.0))


# -------------------------------------------------------------------------------------------- an output directory


MEASURED = "2,500, temperature 0.6, 4 runs, lmms-eval: relaxed, 5 %"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run_of(output, name, seed, score, time):
    """Write the files of a run; returns its entry in results.json."""
    folder = output / "runs" / f"{name}-seed{seed}"
    write(folder / "model" / f"{time}_results.json", json.dumps({"seed": seed, "score": score}))
    write(folder / "model" / f"{time}_samples_vade_{name}.jsonl", '{"doc_id": 0, "resps": "Ja, 5 €"}\n')
    if BENCHMARKS[name].judged:
        write(folder / "judge.json", '{"calls": 1, "unreadable": 0, "example": null}')
    file = (folder / "model" / f"{time}_results.json").relative_to(output).as_posix()
    run = {"seed": seed, "score": score, "questions": 2500, "unscored": 0}
    return run | {"results_file": file, "unreadable_verdicts": 0}


def evaluated(output, scores=None, seeds=(0, 1), time="20261122_120000", weights=None, **changes):
    """The output directory of a finished evaluation, as the contract of `results.json` has it.

    Args:
        weights: the folder that was evaluated; without one, a server had it.
    """
    benchmarks, scores = {}, scores or {"chartqa": 80.0}
    for name, score in scores.items():
        known = BENCHMARKS[name]
        benchmarks[name] = {
            **{"title": known.title, "task": known.task, "metric": known.metric, "dataset": known.dataset},
            **{"scorer": known.scorer, "decoding": "temperature 0.6"},
            **{"questions": 2500, "mean": score, "stderr": 0.5, "identical_runs": False},
            "runs": [run_of(output, name, seed, score, time) for seed in seeds],
        }
    results = {
        "format": 2,
        "model": {"name": "run", "revision": None, "fingerprint": fingerprint(weights) if weights else SERVED},
        **{"backend": "vllm" if weights else "server", "seeds": list(seeds), "limit": None},
        "generation": {
            "temperature": 0.6,
            "top_p": 0.95,
            "top_k": 0,
            "max_new_tokens": 2048,
            "repetition_penalty": 1.0,
        },
        **{"system_prompt": None, "instruction": None, "data": {}},
        "judge": {"model": "Qwen/Qwen2.5-72B-Instruct", "url": "http://judge:8000/v1"},
        "command": "trl-vade evaluate run --output_path results",
        "versions": {"lmms-eval": "0.7.3"},
        **{"started": "2026-11-22T10:00:00+00:00", "finished": "2026-11-22T12:00:00+00:00"},
        "benchmarks": benchmarks,
        "average": {"of": list(scores), "mean": 70.0, "stderr": 0.4},
    }
    results |= changes
    write(output / "results.json", json.dumps(results | {"digest": digest_of(results)}))
    write(output / "results.md", Results(results).table())
    write(output / "evaluation.json", json.dumps({"tasks": list(scores), "seeds": list(seeds)}))
    write(output / "logs" / "20261122.log", "what lmms-eval printed")
    write(output / ".lock", "")
    return output


def on_a_folder(output, folder, name="chartqa"):
    """The same about questions in a folder of the user's."""
    evaluated(output, {name: 80.0}, weights=folder, data={name: "my_charts"})
    results = json.loads((output / "results.json").read_bytes())
    results["benchmarks"][name]["dataset"] = None
    write(output / "results.json", json.dumps(results | {"digest": digest_of(results)}))
    return output


@pytest.fixture
def output(tmp_path, folder):
    return evaluated(tmp_path / "results", weights=folder)


@pytest.fixture
def folder(tmp_path):
    """A model's folder."""
    write(tmp_path / "model" / "model.safetensors", b"weights")
    write(tmp_path / "model" / "vade_posterior.safetensors", b"a posterior")
    write(tmp_path / "model" / "config.json", "{}")
    return tmp_path / "model"


@pytest.fixture
def repo(hub, folder):
    """The repository of that model, with a card by hand."""
    HfApi().create_repo("you/run")
    HfApi().upload_folder(repo_id="you/run", folder_path=folder)
    put(CARD)
    return hub.repos["you/run"]


def put(content, path="README.md", repo_id="you/run", **how):
    HfApi().upload_file(path_or_fileobj=content.encode(), path_in_repo=path, repo_id=repo_id, **how)


def card_of(repo, revision="main"):
    return repo.files(revision)["README.md"].decode()


def index_of(repo):
    return {result.dataset_name: result.metric_value for result in ModelCard(card_of(repo)).data.eval_results}


def count(repo):
    return len(repo.history())


def raw_of(repo):
    """The folders of raw results, from the first that was published."""
    old_first = [commit.oid for commit in reversed(repo.history())]
    paths = [path for oid in old_first for path in sorted(repo.files(oid))]
    return list(dict.fromkeys("/".join(path.split("/")[:2]) for path in paths if path.startswith("vade_evaluation/")))


# ------------------------------------------------------------------------------------------------------ one commit


def test_card_and_raw_results_are_one_commit_and_its_address_is_returned(repo, output, folder):
    before, commits = repo.files(), count(repo)
    url = publish_results(output, "you/run", model_folder=folder)
    assert count(repo) == commits + 1
    assert url.endswith(f"you/run/commit/{repo.branches['main']}")
    assert repo.history()[0].title == "Evaluation: ChartQA (test)"
    files = repo.files()
    changed = {path: content for path, content in files.items() if before.get(path) != content}
    [raw] = raw_of(repo)
    assert raw == f"vade_evaluation/20261122_120000-{fingerprint(folder)[:8]}"
    assert set(changed) == {
        *("README.md", f"{raw}/results.json", f"{raw}/results.md", f"{raw}/evaluation.json"),
        *(f"{raw}/runs/chartqa-seed{seed}/model/20261122_120000_results.json" for seed in (0, 1)),
        *(f"{raw}/runs/chartqa-seed{seed}/model/20261122_120000_samples_vade_chartqa.jsonl" for seed in (0, 1)),
    }
    for path in changed.keys() - {"README.md"}:
        assert changed[path] == (output / path.removeprefix(f"{raw}/")).read_bytes()


def test_the_card_keeps_its_text_and_says_how_it_was_measured(repo, output, folder):
    publish_results(output, "you/run", model_folder=folder)
    card = card_of(repo)
    assert card.startswith("---\nlicense: mit\nlanguage: en\nmodel-index:\n")
    assert "# My run\n\nTrained for a week.\n" in card
    for said in (
        "80.00 ± 0.50",
        "average@2",
        "seeds 0, 1",
        "Qwen2.5-72B-Instruct",
        f"]({raw_of(repo)[0]}/results.json)",
        f"fingerprint {fingerprint(folder)}",
    ):
        assert said in card
    assert "```bash\ntrl-vade evaluate run --output_path results\n```" in card
    [result] = ModelCard(card).data.eval_results
    assert (result.dataset_type, result.dataset_split) == ("lmms-lab-encoder/ChartQA", "test")
    assert (result.dataset_name, result.metric_value) == ("ChartQA (test)", 80.0)


def test_in_the_card_of_a_run_the_results_stand_under_evaluation_and_the_rest_stays(repo, output, folder):
    example = EXAMPLE.read_text(encoding="utf-8")
    put(example)
    publish_results(output, "you/run", model_folder=folder)
    written, card = ModelCard(example).text, ModelCard(card_of(repo)).text
    before, after = written.split("Not evaluated yet.\n")
    assert card.startswith(before.rstrip())
    assert card.endswith(after)
    assert "80.00 ± 0.50" in card.removeprefix(before.rstrip()).removesuffix(after)
    assert ModelCard(card_of(repo)).data.eval_results[0].task_type == "image-text-to-text"


def test_a_second_time_replaces_and_doubles_nothing(repo, output, folder, tmp_path):
    publish_results(output, "you/run", model_folder=folder)
    once, commits = repo.files(), count(repo)
    publish_results(output, "you/run", model_folder=folder)
    assert (repo.files(), count(repo)) == (once, commits)  # not even a commit
    again = evaluated(tmp_path / "again", {"chartqa": 90.0}, time="20261123_120000", weights=folder)
    publish_results(again, "you/run", model_folder=folder)
    card = card_of(repo)
    assert index_of(repo) == {"ChartQA (test)": 90.0}
    assert "80.00 ± 0.50" not in card
    assert card.count("90.00 ± 0.50") == 1
    first, second = raw_of(repo)  # another evaluation of the same day takes nothing from the first
    assert {f"{first}/results.json", f"{second}/results.json"} <= repo.files().keys()


def test_an_evaluation_that_grew_takes_the_place_of_its_beginning(repo, output, folder):
    publish_results(output, "you/run", model_folder=folder)
    more = {"chartqa": 80.0, "mathvision": 25.0}
    evaluated(output, more, seeds=(0, 1, 2), weights=folder, finished="2026-11-24T12:00:00+00:00")
    publish_results(output, "you/run", model_folder=folder)
    [place] = raw_of(repo)
    raw = {path.removeprefix(f"{place}/") for path in repo.files() if path.startswith("vade_evaluation/")}
    here = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert raw == here - {"logs/20261122.log", ".lock"}
    assert "runs/mathvision-seed2/judge.json" in raw
    assert "Average of these 2" in card_of(repo)
    assert index_of(repo) == {"ChartQA (test)": 80.0, "MathVision (test)": 25.0}  # and no average


def test_what_a_crashed_attempt_left_in_a_runs_folder_is_not_sent(repo, output, folder):
    write(output / "runs/chartqa-seed0/model/20261122_090000_samples_vade_chartqa.jsonl", "{}\n")
    write(output / "runs/chartqa-seed0/model/submissions/chartqa_results.json", "{}")
    publish_results(output, "you/run", model_folder=folder)
    assert not [path for path in repo.files() if "090000" in path or "submissions" in path]


def test_the_testbed_is_no_folder_of_the_users(repo, output, folder):
    publish_results(on_a_folder(output, folder, "testbed"), "you/run", model_folder=folder)
    assert index_of(repo) == {"Testbed (validation), the embedded data set": 80.0}
    assert [path for path in repo.files() if "_samples_" in path]


# ------------------------------------------------------------------------------------------ where there is no card


def test_a_repository_is_made_and_takes_the_card_of_the_folder(hub, output, folder):
    write(folder / "README.md", "---\nlicense: mit\n---\n# From the folder\n")
    publish_results(output, "run", model_folder=folder, private=True)
    assert hub.repos["you/run"].private
    assert "# From the folder\n" in card_of(hub.repos["you/run"])
    assert index_of(hub.repos["you/run"]) == {"ChartQA (test)": 80.0}


def test_without_any_card_a_short_one_is_made(hub, output):
    publish_results(output, "you/run", model_folder=None)
    card = card_of(hub.repos["you/run"])
    assert "\n# Model Card for run\n" in card
    assert ModelCard(card).data.model_name == "run"


def test_a_branch_gets_the_results_and_main_does_not(repo, output, folder):
    HfApi().create_branch("you/run", branch="seed/3")
    put("# Another seed\n", revision="seed/3")
    publish_results(output, "you/run", model_folder=folder, revision="seed/3")
    assert card_of(repo) == CARD
    assert "# Another seed\n" in card_of(repo, "seed/3")
    assert "80.00 ± 0.50" in card_of(repo, "seed/3")


@pytest.mark.parametrize("text", ["---\n- a list\n---\n", "---\na: [\n---\n", "---\nmodel-index: mine\n---\n"])
def test_a_card_that_cannot_be_read_is_said_at_once_and_nothing_is_sent(hub, output, text):
    hub.add_repo("you/run").add("main", "by hand", "", {"README.md": text.encode()})
    commits = count(hub.repos["you/run"])
    with refused(EvaluationError, ["you/run", "README.md"]):
        publish_results(output, "you/run", model_folder=None)
    assert count(hub.repos["you/run"]) == commits
    assert not [line for line in hub.requests if "preupload" in line]


# -------------------------------------------------------------------------------------------- what is not public


@pytest.mark.parametrize("allowed", [False, True])
def test_questions_of_the_user_are_sent_only_when_they_are_allowed(repo, output, folder, allowed):
    publish_results(on_a_folder(output, folder, "mathvision"), "you/run", model_folder=folder, publish_samples=allowed)
    names = {path.rpartition("/")[2] for path in repo.files() if "/runs/" in path}
    # What the judge said may repeat an answer.
    quoted = {"judge.json", "20261122_120000_samples_vade_mathvision.jsonl"} if allowed else set()
    assert names == {"20261122_120000_results.json"} | quoted
    assert ("All answers, settings" in card_of(repo)) == allowed


def test_of_paths_of_this_machine_the_last_part_is_sent(repo, output, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/al")
    command = (
        "trl-vade evaluate '/data/al s/model' --data chartqa=/data/al/rows --system_prompt '/no_think' -o https://x/y"
    )
    evaluated(output, weights=folder, command=command, system_prompt="/no/think")
    path = "runs/chartqa-seed0/model/20261122_120000_results.json"
    settings = {
        "output_path": "/data/al/out/chartqa-seed0",
        "hf_hub_log_args": ",output_path=/data/al/out/chartqa-seed0,b=/x/y",
        "model_args": "pretrained=model,url=http://host:8000/v1",
        "include_path": ["/tmp/vade-tasks-1/tasks"],
        "note": "is in /home/al/rows",
        "score": 0.5,
    }
    write(output / path, json.dumps({"config": settings}))
    before = (output / path).read_bytes()
    publish_results(output, "you/run", model_folder=folder)
    [raw] = raw_of(repo)
    sent = json.loads(repo.files()[f"{raw}/{path}"])["config"]
    assert sent == {
        "output_path": "chartqa-seed0",
        "hf_hub_log_args": ",output_path=chartqa-seed0,b=y",
        "model_args": "pretrained=model,url=http://host:8000/v1",
        "include_path": ["tasks"],
        "note": "is in ~/rows",
        "score": 0.5,
    }
    assert (output / path).read_bytes() == before
    shown = "trl-vade evaluate model --data chartqa=rows --system_prompt /no_think -o https://x/y"
    results = json.loads(repo.files()[f"{raw}/results.json"])
    assert (results["command"], results["system_prompt"]) == (shown, "/no/think")
    assert f"```bash\n{shown}\n```" in card_of(repo)
    assert not [path for path, content in repo.files().items() if b"/data/al" in content]


# ------------------------------------------------------------------------------------------------- refused results


def unpublished(repo, output, *words, **how):
    """Publish, which is refused with a message that names the `words`, and see that nothing came of it."""
    before = repo and (repo.files(), count(repo))
    with refused(EvaluationError, words) as raised:
        publish_results(output, "you/run", **how)
    assert before == (repo and (repo.files(), count(repo)))
    return str(raised.value)


def test_results_that_are_not_there_or_not_whole_are_refused(hub, output, tmp_path):
    unpublished(None, tmp_path, tmp_path / "results.json", model_folder=None)
    (output / "results.json").write_text((output / "results.json").read_text()[:-10])
    unpublished(None, output, output / "results.json", "JSON", model_folder=None)
    assert not hub.repos


@pytest.mark.parametrize(
    "path", ["evaluation.json", "results.md", "runs/chartqa-seed1/model/20261122_120000_results.json"]
)
def test_results_without_a_file_of_theirs_are_refused(hub, output, path):
    (output / path).unlink()
    unpublished(None, output, output / path, model_folder=None)
    assert not hub.repos


@pytest.mark.parametrize("path", ["../elsewhere_results.json", "runs/../../x/y_results.json", "/etc/x/y_results.json"])
def test_a_file_outside_of_the_directory_is_never_sent(hub, output, path):
    results = json.loads((output / "results.json").read_bytes())
    results["benchmarks"]["chartqa"]["runs"][0]["results_file"] = path
    write(output / "results.json", json.dumps(results | {"digest": digest_of(results)}))
    unpublished(None, output, output / "results.json", path, "runs/<run>/", model_folder=None)
    assert not hub.repos


def test_limited_results_are_refused_unless_they_are_allowed_and_then_programs_are_not_told(hub, repo, folder, output):
    evaluated(output, limit=8, weights=folder)
    benchmark(hub, "tasks: [{id: chartqa}]")
    unpublished(repo, output, "8", "--limit", "--publish_limited", model_folder=folder)
    publish_results(output, "you/run", model_folder=folder, allow_limited=True)
    card = card_of(repo)
    assert card.startswith(CARD.rstrip())
    assert says(card, "8 questions")
    assert "model-index" not in card
    assert f"{raw_of(repo)[0]}/results.json" in repo.files()
    assert not [path for path in repo.files() if path.startswith(".eval_results")]


# ------------------------------------------------------------------------------------------------------- secrets


def test_a_secret_of_the_environment_or_what_looks_like_a_token_is_refused_and_not_repeated(hub, output, monkeypatch):
    samples = output / "runs/chartqa-seed1/model/20261122_120000_samples_vade_chartqa.jsonl"
    write(samples, '{"resps": "sk-do-not-tell"}\n')
    for name in ("HF_TOKEN", "JUDGE_API_KEY", "OPENAI_API_KEY", "VADE_SERVER_API_KEY"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "sk-do-not-tell")
            assert "do-not-tell" not in unpublished(None, output, samples, "revoke", model_folder=None)
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN")
        write(Path(constants.HF_TOKEN_PATH), "sk-do-not-tell")
        unpublished(None, output, samples, "token", model_folder=None)
    write(samples, "{}\n")
    for path in ("results.md", "results.json"):
        text = (output / path).read_text()
        told = text.replace("trl-vade evaluate", f"TOKEN={SECRET} trl-vade evaluate")
        write(output / path, f"{SECRET}\n" if path == "results.md" else told)
        assert "Secret5" not in unpublished(None, output, output / path, "token", "revoke", model_folder=None)
        write(output / path, text)
    assert not hub.repos


def test_so_is_a_token_in_the_card_of_the_folder(repo, output, folder):
    write(folder / "README.md", f"# Mine\n\nUse {SECRET}.\n")
    HfApi().delete_file("README.md", "you/run")
    unpublished(repo, output, folder / "README.md", "token", model_folder=folder)


def test_the_key_of_a_local_server_is_a_word_and_no_secret(repo, output, folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    write(output / "runs/chartqa-seed0/model/20261122_120000_results.json", '"EMPTY"')
    publish_results(output, "you/run", model_folder=folder)


# --------------------------------------------------------------------------------------------------- leaderboards


def benchmark(hub, text):
    """The data set of ChartQA with this `eval.yaml`."""
    name = BENCHMARKS["chartqa"].dataset
    hub.add_repo(f"datasets/{name}").add("main", "by them", "", {"eval.yaml": text.encode()})


def test_a_registered_benchmark_gets_an_entry_that_the_hubs_client_reads(hub, repo, output, folder, caplog):
    benchmark(hub, "name: Charts\ntasks:\n- {id: human, config: human}\n- {id: all, split: test}\n")
    with caplog.at_level(logging.INFO, "trl_vade"):
        publish_results(
            evaluated(output, {"chartqa": 80.0, "scienceqa": 91.0}, weights=folder),
            "you/run",
            model_folder=folder,
            revision="main",
        )
    assert [path for path in repo.files() if path.startswith(".eval_results/")] == [".eval_results/trl_vade.yaml"]
    [entry] = yaml.safe_load(repo.files()[".eval_results/trl_vade.yaml"])
    assert entry["dataset"] == {"id": "lmms-lab-encoder/ChartQA", "task_id": "all"}
    assert entry["value"] == 0.8  # in the units of relaxed_overall
    assert entry["date"] == "2026-11-22T12:00:00+00:00"
    assert entry["source"] == {"url": f"{hub.url}/you/run/tree/main/{raw_of(repo)[0]}", "name": "Raw results"}
    assert entry["notes"] == f"average@2 of relaxed_overall, whose best is 1: {MEASURED.replace('4 runs', '2 runs')}"
    assert says(caplog.text, "ScienceQA-FULL (test)")
    assert says(caplog.text, "lmms-lab-encoder/ScienceQA")


@pytest.mark.parametrize(
    ("text", "said"), [("tasks: [{id: charts, split: validation}]", "0 of its tasks"), ("tasks: [", "eval.yaml")]
)
def test_where_nobody_can_say_which_task_it_is_there_is_no_entry(hub, repo, output, folder, caplog, text, said):
    benchmark(hub, text)
    with caplog.at_level(logging.INFO, "trl_vade"):
        publish_results(output, "you/run", model_folder=folder)
    assert not [path for path in repo.files() if path.startswith(".eval_results")]
    assert said in caplog.text
    assert index_of(repo) == {"ChartQA (test)": 80.0}


def test_where_the_data_set_does_not_answer_the_rest_is_published(hub, repo, output, folder, caplog):
    hub.fault("HEAD /datasets/", status=500, times=100)
    with caplog.at_level(logging.INFO, "trl_vade"):
        publish_results(output, "you/run", model_folder=folder)
    assert says(caplog.text, "eval.yaml")
    assert index_of(repo) == {"ChartQA (test)": 80.0}


def test_a_leaderboards_tasks_are_those_of_this_configuration_and_this_split():
    split = [{"id": "one", "split": "validation"}, {"id": "two", "split": "test"}]
    for tasks, found in (
        ([{"id": "one", "config": "default", "split": "test"}], ["one"]),
        (split, ["two"]),
        ([{"id": "one", "config": "human"}], []),
        ([{"id": "one"}, {"id": "two"}], ["one", "two"]),
        ([{"split": "test"}, "test", None], []),
        ("tasks", []),
    ):
        assert declared_tasks({"name": "Charts", "tasks": tasks}, None, "test") == found
    tasks = {"tasks": [{"id": "all"}, {"id": "full", "config": "ScienceQA-FULL"}]}
    assert declared_tasks(tasks, "ScienceQA-FULL", "test") == ["full"]
    assert declared_tasks(["no mapping"], None, "test") == []


def test_one_task_gets_one_result_of_a_model(hub, repo, output, folder):
    name = BENCHMARKS["mathvision"].dataset
    hub.add_repo(f"datasets/{name}").add("main", "by them", "", {"eval.yaml": b"tasks: [{id: all}]"})
    evaluated(output, {"mathvision": 25.0, "mathvision_rules": 20.0}, weights=folder)
    publish_results(output, "you/run", model_folder=folder)
    assert [path for path in repo.files() if path.startswith(".eval_results")] == [".eval_results/trl_vade.yaml"]


def test_a_second_time_replaces_the_entries_and_files_of_others_stay(hub, repo, output, folder, tmp_path):
    benchmark(hub, "tasks: [{id: all}]")
    theirs = "- {dataset: {id: lmms-lab-encoder/ChartQA, task_id: all}, value: 0.1}\n"
    put(theirs, ".eval_results/chartqa.yaml")
    for score in (80.0, 90.0):
        publish_results(evaluated(output, {"chartqa": score}, weights=folder), "you/run", model_folder=folder)
        [ours] = yaml.safe_load(repo.files()[".eval_results/trl_vade.yaml"])
        assert ours["value"] == score / 100
    science = evaluated(tmp_path / "science", {"scienceqa": 91.0}, time="20261123_000000", weights=folder)
    publish_results(science, "you/run", model_folder=folder)
    assert [path for path in repo.files() if path.startswith(".eval_results")] == [".eval_results/chartqa.yaml"]
    assert repo.files()[".eval_results/chartqa.yaml"].decode() == theirs
    assert index_of(repo) == {"ScienceQA-FULL (test)": 91.0}
    assert "90.00 ± 0.50" not in card_of(repo)
    assert len(raw_of(repo)) == 2


# ------------------------------------------------------------------------------------------------------ the Hub


class Meanwhile(logging.Handler):
    """Does something once, between two requests: after the one in whose line `after` is."""

    def __init__(self, after, do):
        super().__init__()
        self.after, self.do = after, do

    def emit(self, record):
        if self.do and self.after in record.getMessage():
            do, self.do = self.do, None
            do()


@pytest.fixture
def meanwhile():
    """A function `meanwhile(after, do)`; the client's httpx logs each request when it is answered."""
    log = logging.getLogger(HTTP_ERROR.__module__.partition(".")[0])
    level, handlers = log.level, []

    def install(after, do):
        handlers.append(Meanwhile(after, do))
        log.addHandler(handlers[0])
        log.setLevel(logging.INFO)

    yield install
    log.setLevel(level)
    for handler in handlers:
        log.removeHandler(handler)
        assert handler.do is None, "the request never came"


def test_a_change_of_the_card_that_comes_in_between_is_kept(repo, output, folder, meanwhile, caplog):
    def change():
        files = repo.files() | {"README.md": CARD.replace("a week", "two weeks").encode()}
        repo.add("main", "by somebody else", "", files, repo.commit().lfs)

    meanwhile("preupload", change)
    publish_results(output, "you/run", model_folder=folder)
    assert says(caplog.text, "2 of 3")
    assert [commit.title for commit in repo.history()[:2]] == ["Evaluation: ChartQA (test)", "by somebody else"]
    assert "Trained for two weeks." in card_of(repo)
    assert "80.00 ± 0.50" in card_of(repo)


def test_two_who_publish_at_once_do_not_mix_their_runs(repo, output, folder, tmp_path, meanwhile):
    scores = {"chartqa": 70.0, "scienceqa": 60.0}
    other = evaluated(tmp_path / "other", scores, time="20261122_110000", weights=folder)
    meanwhile("preupload", lambda: publish_results(other, "you/run", model_folder=folder))
    publish_results(output, "you/run", model_folder=folder)
    folders, files = raw_of(repo), repo.files()
    assert len(folders) == 2
    for source, raw in zip((other, output), folders, strict=True):
        here = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
        assert {path.removeprefix(f"{raw}/") for path in files if path.startswith(raw)} == here - {
            *("logs/20261122.log", ".lock"),
        }
        assert files[f"{raw}/results.json"] == (source / "results.json").read_bytes()


def test_a_card_that_does_not_arrive_is_not_replaced_by_an_older_one_from_the_cache(hub, repo, output, folder):
    HfApi().hf_hub_download("you/run", "README.md")
    put(CARD.replace("a week", "two weeks"))
    fault = hub.fault("HEAD /you/run/resolve/main/README.md", status=400)
    publish_results(output, "you/run", model_folder=folder)
    assert fault.times == 0
    assert "Trained for two weeks." in card_of(repo)


def test_a_hub_that_refuses_is_said_with_the_command_for_later(hub, repo, output, folder):
    hub.fault(COMMIT, status=403, times=100)
    command = f"`trl-vade evaluate {folder} --output_path {output} --push_to_hub you/run --hub_revision main`"
    with refused(HubError, ["you/run", "403"], [command]) as raised:
        publish_results(output, "you/run", model_folder=folder, revision="main")
    assert raised.value.status == 403
    assert card_of(repo) == CARD


def test_offline_says_how_to_publish_later(hub, output, folder):
    command = f"`trl-vade evaluate {folder} --output_path {output} --push_to_hub you/run`"
    with offline(), refused(HubOfflineError, ["HF_HUB_OFFLINE"], [command]):
        publish_results(output, "you/run", model_folder=folder)
    assert not hub.requests
