"""Results of an evaluation on a stand-in for the Hub: one commit with card, raw results and leaderboard entries."""

from pathlib import Path

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard

from tests.support.evaluations import finished
from trl_vade.errors import HubError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.publish import publish_results
from trl_vade.hub.card_parts import RESULTS, RESULTS_END
from trl_vade.hub.uploading import HubTarget

EXAMPLE = Path(__file__).parents[2] / "model_cards" / "model_example.md"
CARD = "---\nlicense: mit\nlanguage: en\n---\n# My run\n\nTrained for a week.\n"
MEASURED = "20 of 2,500, temperature 0.6, 2 runs, lmms-eval: relaxed, 5 %"


def evaluated(output, scores=None, data=(), **facts):
    """The output directory of a finished evaluation, with scores in per cent; `data` are rows of the user's."""
    scores = {name: [n < score / 5 for n in range(20)] for name, score in (scores or {"chartqa": 80}).items()}
    return finished(output, scores, data=dict.fromkeys(data, "my_charts"), **facts)


@pytest.fixture
def output(tmp_path):
    return evaluated(tmp_path / "results")


@pytest.fixture
def repo(hub):
    """The repository of that model, with a card by hand."""
    HfApi().create_repo("you/run")
    put(CARD)
    return hub.repos["you/run"]


def put(content, path="README.md", **how):
    HfApi().upload_file(path_or_fileobj=content.encode(), path_in_repo=path, repo_id="you/run", **how)


def publish(output, **target):
    return publish_results(output, HubTarget("you/run", **target))


def card_of(repo, revision="main"):
    return repo.files(revision)["README.md"].decode()


def index_of(repo):
    return {result.dataset_name: result.metric_value for result in ModelCard(card_of(repo)).data.eval_results}


def raw_of(repo):
    """The folders of raw results."""
    return sorted({"/".join(path.split("/")[:2]) for path in repo.files() if path.startswith("vade_evaluation/")})


def test_card_and_raw_results_are_one_commit_and_its_address_is_returned(hub, repo, output):
    before, commits = repo.files(), len(repo.history())
    url = publish(output)
    assert len(repo.history()) == commits + 1
    assert url.endswith(f"you/run/commit/{repo.branches['main']}")
    assert repo.history()[0].title == "Evaluation: ChartQA (test)"
    changed = {path: content for path, content in repo.files().items() if before.get(path) != content}
    raw = "vade_evaluation/20260801_120000"
    runs = [f"{raw}/runs/chartqa-seed{seed}/models__Qwen2.5-VL-7B/20260801_120000" for seed in (0, 1)]
    assert set(changed) == {
        *("README.md", f"{raw}/results.json", f"{raw}/results.md", f"{raw}/evaluation.json"),
        *(f"{run}_{name}" for run in runs for name in ("results.json", "samples_vade_chartqa.jsonl")),
    }
    for path in changed.keys() - {"README.md"}:
        assert changed[path] == (output / path.removeprefix(f"{raw}/")).read_bytes()
    card = card_of(repo)
    assert card.startswith("---\nlicense: mit\nlanguage: en\nmodel-index:\n")
    assert "# My run\n\nTrained for a week.\n" in card
    for said in ("80.00 ± 0.00", "average@2", "seeds 0, 1", f"]({raw}/results.json)"):
        assert said in card
    [result] = ModelCard(card).data.eval_results
    assert (result.dataset_type, result.dataset_split) == ("lmms-lab-encoder/ChartQA", "test")
    assert (result.metric_type, result.metric_value) == ("relaxed_overall", 80.0)
    assert result.metric_name == f"average@2 relaxed_overall ({MEASURED})"
    assert (result.source_name, result.source_url) == ("trl_vade", f"{hub.url}/you/run/tree/main/{raw}")


def test_in_the_card_of_a_run_the_results_stand_under_evaluation_and_the_rest_stays(repo, output):
    example = EXAMPLE.read_text(encoding="utf-8")
    put(example)
    for _ in range(2):
        publish(output)
        written, card = ModelCard(example).text, ModelCard(card_of(repo)).text
        before, after = written.split("Not evaluated yet.\n")
        assert card.startswith(before.rstrip())
        assert card.endswith(after)
        assert "80.00 ± 0.00" in card.removeprefix(before.rstrip()).removesuffix(after)
    put(card_of(repo).replace(RESULTS_END, "My own words."))  # a mark whose end somebody deleted takes no text with it
    publish(output)
    assert "My own words." in card_of(repo)
    assert card_of(repo).count(RESULTS) == 2


def test_a_second_time_replaces_and_doubles_nothing(repo, output, tmp_path):
    publish(output)
    once, commits = repo.files(), len(repo.history())
    publish(output)
    assert (repo.files(), len(repo.history())) == (once, commits)  # not even a commit
    again = evaluated(tmp_path / "again", {"chartqa": 90.0}, time="20261123_120000")
    publish(again)
    card = card_of(repo)
    assert index_of(repo) == {"ChartQA (test)": 90.0}
    assert "80.00 ± 0.00" not in card
    assert card.count("90.00 ± 0.00") == 1
    assert len(raw_of(repo)) == 2  # another evaluation takes nothing from the first
    evaluated(again, {"chartqa": 90.0, "mathvision": 25.0}, seeds=(0, 1, 2), time="20261123_120000")
    publish(again)
    assert len(raw_of(repo)) == 2  # one that grew takes the place of its beginning
    assert f"{raw_of(repo)[1]}/runs/mathvision-seed2/judge.json" in repo.files()
    assert index_of(repo) == {"ChartQA (test)": 90.0, "MathVision (test)": 25.0}  # and no average


def test_entries_of_others_stay_but_for_those_about_the_same_questions(repo, output):
    """huggingface_hub would write one entry about a data set, with the source of the first."""
    charts = {"type": "lmms-lab-encoder/ChartQA", "name": "Charts"}
    theirs = [
        {"task": {"type": "vqa"}, "dataset": charts | {"split": split}, "metrics": [{"type": "f1", "value": 9.0}]}
        for split in ("validation", "test")
    ]
    about = {"license": "mit", "pipeline_tag": "vqa", "model-index": [{"name": "their name", "results": theirs}]}
    put(f"---\n{yaml.safe_dump(about)}---\n# Mine\n")
    publish(output)
    data = ModelCard(card_of(repo)).data
    assert [one.metric_value for one in data.eval_results] == [9.0, 80.0]
    assert (data.model_name, data.license, data.eval_results[1].task_type) == ("their name", "mit", "vqa")


def test_of_questions_of_the_users_only_scores_are_sent(repo, output):
    publish(evaluated(output, {"mathvision": 25.0}, data=["mathvision"]))
    assert {path.rpartition("/")[2] for path in repo.files() if "/runs/" in path} == {"20260801_120000_results.json"}
    assert index_of(repo) == {"MathVision (test), questions of the folder my_charts": 25.0}
    assert "All answers, settings" not in card_of(repo)


def test_of_paths_of_this_machine_the_user_is_not_told(repo, output, monkeypatch):
    monkeypatch.setenv("HOME", "/home/al")
    path = "runs/chartqa-seed0/models__Qwen2.5-VL-7B/20260801_120000_results.json"
    evaluated(output, command="trl-vade evaluate /home/al/model")
    (output / path).write_text('{"dataset_path": "/home/al/rows"}')
    publish(output)
    assert repo.files()[f"{raw_of(repo)[0]}/{path}"] == b'{"dataset_path": "~/rows"}'
    assert "```bash\ntrl-vade evaluate ~/model\n```" in card_of(repo)
    assert not [content for content in repo.files().values() if b"/home/al" in content]


def benchmark(hub, text, name="chartqa"):
    """The data set of a benchmark with this `eval.yaml`."""
    hub.add_repo(f"datasets/{BENCHMARKS[name].dataset}").add("main", "by them", "", {"eval.yaml": text.encode()})


def entries_of(repo):
    return yaml.safe_load(repo.files().get(".eval_results/trl_vade.yaml", b"[]"))


def test_a_registered_benchmark_gets_an_entry_that_the_hubs_client_reads(hub, repo, output):
    benchmark(hub, "name: Charts\ntasks:\n- {id: human, config: human}\n- {id: all, split: test}\n")
    publish(evaluated(output, {"chartqa": 80.0, "scienceqa": 95.0}))
    [entry] = entries_of(repo)
    assert entry["dataset"] == {"id": "lmms-lab-encoder/ChartQA", "task_id": "all"}
    assert entry["value"] == 0.8  # in the units of relaxed_overall
    assert entry["date"] == "2026-08-01"
    assert entry["source"] == {"url": f"{hub.url}/you/run/tree/main/{raw_of(repo)[0]}", "name": "Raw results"}
    assert entry["notes"] == f"average@2 of relaxed_overall, whose best is 1: {MEASURED}"


def test_a_second_time_replaces_the_entries_and_files_of_others_stay(hub, repo, output, tmp_path, caplog):
    benchmark(hub, "tasks: [{id: all}]", "mathvision")
    put("- {}\n", ".eval_results/others.yaml")
    for score in (20.0, 30.0):
        publish(evaluated(output, {"mathvision": score, "mathvision_rules": 5.0}))
        assert [entry["value"] for entry in entries_of(repo)] == [score / 100]  # a task has one result of a model
    assert "Gone from the card" not in caplog.text
    publish(evaluated(tmp_path / "science", {"scienceqa": 95.0}, time="20261123_000000"))
    assert "Gone from the card: " in caplog.text
    assert "mathvision_standard_eval of MathVision (test)" in caplog.text
    assert [path for path in repo.files() if path.startswith(".eval_results")] == [".eval_results/others.yaml"]
    assert index_of(repo) == {"ScienceQA-FULL (test)": 95.0}
    assert len(raw_of(repo)) == 2


def test_a_card_that_does_not_arrive_is_not_replaced_by_an_older_one_from_the_cache(hub, repo, output):
    HfApi().hf_hub_download("you/run", "README.md")
    put(CARD.replace("a week", "two weeks"))
    hub.fault("HEAD /you/run/resolve/main/README.md", status=400)
    with pytest.raises(HubError):
        publish(output)
    assert "Trained for two weeks." in card_of(repo)
    publish(output)
    assert "Trained for two weeks." in card_of(repo)
