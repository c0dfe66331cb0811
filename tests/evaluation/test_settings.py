"""What of an evaluation is refused before a model is looked for, and what all its runs have in common.

lmms-eval itself is not needed here: `check` asks no more than which release is installed.
"""

import sys
from pathlib import Path

import pytest
from datasets import Dataset

from tests.support.evaluations import install_lmms_eval
from tests.support.hub import offline
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, HubError, HubOfflineError
from trl_vade.evaluation.benchmarks import BENCHMARKS, FIVE
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.lmms.tasks import default_rows
from trl_vade.evaluation.models import EvaluatedModel
from trl_vade.evaluation.settings import Evaluation, Generation, check, check_publication, comparable, versions
from trl_vade.hub.uploading import HubTarget

JUDGE = Judge.of("http://127.0.0.1:8000/v1", "Qwen/Qwen2.5-72B-Instruct")


def make_evaluation(**changes):
    """An evaluation that can work where lmms-eval is installed."""
    return Evaluation(**{"model": "you/model", "output": Path("results"), "tasks": ["chartqa"]} | changes)


@pytest.fixture
def with_lmms_eval(tmp_path, monkeypatch):
    """lmms-eval seems to be installed; see `install_lmms_eval`."""
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))


@pytest.fixture
def without_lmms_eval(monkeypatch):
    """lmms-eval cannot be imported, also where it is installed."""
    monkeypatch.setitem(sys.modules, "lmms_eval", None)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A folder with a data set that every benchmark takes but those with another split than test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows").mkdir()
    Dataset.from_list([{"answer": "4"}]).to_parquet(tmp_path / "rows" / "test-00000-of-00001.parquet")
    return tmp_path / "rows"


# ------------------------------------------------------------------------------------------------------------ check


def test_an_evaluation_that_can_work_has_its_benchmarks_in_the_order_of_the_command(with_lmms_eval, rows):
    assert check(make_evaluation()) == [BENCHMARKS["chartqa"]]
    assert check(make_evaluation(tasks=FIVE, judge=JUDGE)) == [BENCHMARKS[name] for name in FIVE]
    chosen = check(make_evaluation(tasks=["scienceqa", "chartqa", "scienceqa"], data={"chartqa": rows}))
    assert [benchmark.name for benchmark in chosen] == ["scienceqa", "chartqa"]


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [7], "generation": Generation(temperature=0)},
        {"generation": Generation(top_p=1)},
        {"generation": Generation(top_k=20), "backend": "vllm"},
        {"backend": "server", "server_url": "http://127.0.0.1:8000/v1"},
        {"seeds": [0, 2**32 - 1]},
        {"limit": 1},
        {"model_args": {"max_pixels": 1003520}},
    ],
)
def test_settings_at_the_edge_of_what_is_refused_are_taken(with_lmms_eval, tmp_path, changes):
    (tmp_path / "site" / "vllm.py").touch()  # seems to be installed
    assert check(make_evaluation(**changes))


def test_without_vllm_its_backend_is_refused(with_lmms_eval, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with refused(ConfigurationError, ["--backend", "vllm"], ['pip install "trl-vade[vllm]"']):
        check(make_evaluation(backend="vllm"))


def test_rows_in_the_place_of_the_embedded_data_set_are_refused(with_lmms_eval, tmp_path):
    """Its scores are told as those of the embedded data set, and its samples are published."""
    with refused(ConfigurationError, ["--data", "testbed"], ["--data mixture=FOLDER"]):
        check(make_evaluation(tasks=["testbed"], data={"testbed": tmp_path}))
    assert check(make_evaluation(tasks=["testbed"], data=default_rows(["testbed"])))


SERVER = {"backend": "server", "server_url": "http://127.0.0.1:8000/v1"}
REFUSED = [
    *(("--tasks", {"tasks": tasks}) for tasks in (["chartqa", "mathvistas"], ["mixture"], FIVE)),
    *(("--seeds", {"seeds": seeds}) for seeds in ([], [0, 1, 0], [0, -1], [2**32], [0.5])),
    *((f"--{name}", {name: 0}) for name in ("limit", "batch_size")),
    *(("--temperature", {"generation": Generation(temperature=float(value))}) for value in ("-0.1", "inf", "nan")),
    *(("--top_p", {"generation": Generation(top_p=float(value))}) for value in ("0", "1.1", "nan")),
    ("--top_k", {"generation": Generation(top_k=-1)}),
    ("--top_k", SERVER | {"generation": Generation(top_k=20)}),
    ("--repetition_penalty", {"generation": Generation(repetition_penalty=0)}),
    ("--repetition_penalty", SERVER | {"generation": Generation(repetition_penalty=1.05)}),
    ("--max_new_tokens", {"generation": Generation(max_new_tokens=0)}),
    ("--backend", {"backend": "sglang"}),
    ("--server_url", {"backend": "server"}),
    ("--server_url", {"backend": "server", "server_url": "http://you:hf_secret@host/v1"}),
    ("--server_url", {"backend": "server", "server_url": "http://host/v1?key=hf_secret"}),
    ("--model_args", {"model_args": {"pretrained": "x"}}),
    *(("--data", {"data": data}) for data in ({"scienceqa": Path("x")}, {"chartqa": Path("nowhere")})),
    ("--device", {"device": "cpu", "backend": "vllm"}),
]


def test_what_cannot_work_is_refused_and_said(without_lmms_eval):
    """Before lmms-eval is missed: who has to correct the command has not installed 2.5 GB for it."""
    for name, changes in REFUSED:
        with refused(ConfigurationError, [name]) as raised:
            check(make_evaluation(**changes))
        assert "hf_secret" not in str(raised.value)


def test_a_judge_is_not_asked_for_where_another_brings_its_own(with_lmms_eval):
    assert check(make_evaluation(tasks=["mathvista"]), judged=False) == [BENCHMARKS["mathvista"]]


def test_rows_without_the_split_that_is_needed_are_refused(rows):
    with refused(ConfigurationError, ["'validation'", "'answer'", "test: answer"]):
        check(make_evaluation(tasks=["mixture"], data={"mixture": rows}))


def test_without_lmms_eval_the_message_says_what_to_install(without_lmms_eval):
    with refused(ConfigurationError, ["lmms-eval"], ['pip install "trl-vade[eval]"']):
        check(make_evaluation())


def test_another_release_of_lmms_eval_is_refused_since_its_faults_are_others(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site", "0.8.0"))
    with refused(ConfigurationError, ["lmms-eval", "0.8.0"], ["0.7.3", 'pip install "trl-vade[eval]"']):
        check(make_evaluation())


# ---------------------------------------------------------------------------------------------------- publication


def test_scores_of_a_part_of_the_questions_are_not_published_unless_that_is_said_to_be_wanted(hub):
    with refused(ConfigurationError, ["--push_to_hub", "you/model", "--limit 3"], ["--publish_limited"]):
        check_publication(make_evaluation(limit=3), HubTarget("you/model"), False)
    assert (hub.requests, hub.repos) == ([], {})
    check_publication(make_evaluation(limit=3), HubTarget("you/model"), True)
    assert hub.repos.keys() == {"you/model"}


@pytest.mark.parametrize(("private", "names"), [(True, ["--private", "public"]), (False, ["--public", "private"])])
def test_a_repository_that_is_not_as_private_as_was_asked_is_refused(hub, private, names):
    hub.add_repo("you/model", private=not private)
    with refused(ConfigurationError, ["you/model", *names]):
        check_publication(make_evaluation(), HubTarget("you/model", private=private), False)
    check_publication(make_evaluation(), HubTarget("you/model", private=not private), False)
    check_publication(make_evaluation(model="you/new"), HubTarget("you/new", private=private), False)
    assert hub.repos["you/new"].private == private


def test_results_of_another_model_of_the_hub_are_refused_and_names_of_folders_and_servers_are_free(hub, tmp_path):
    with refused(ConfigurationError, ["--push_to_hub", "you/run", "you/model"]):
        check_publication(make_evaluation(), HubTarget("you/run"), False)
    assert (hub.requests, hub.repos) == ([], {})
    for changes in ({"model": str(tmp_path)}, {"backend": "server"}, {"model": "testbed"}):
        check_publication(make_evaluation(**changes), HubTarget("you/run"), False)
    check_publication(make_evaluation(), HubTarget("model"), False)


def test_offline_a_publication_is_refused_and_told_that_it_can_be_made_up_for(hub):
    with offline(), refused(HubOfflineError, ["--push_to_hub", "you/model", "HF_HUB_OFFLINE"]):
        check_publication(make_evaluation(), HubTarget("you/model"), False)
    assert (hub.requests, hub.repos) == ([], {})


@pytest.mark.parametrize("there", [False, True])
def test_a_login_that_may_only_read_is_refused_before_anything_is_evaluated(hub, monkeypatch, there):
    if there:
        hub.add_repo("you/model")
    monkeypatch.setenv("HF_TOKEN", "hf_read_only")
    with refused(HubError, ["you/model", "403"], ["write access"]) as raised:
        check_publication(make_evaluation(), HubTarget("you/model"), False)
    assert "hf_read_only" not in str(raised.value)
    assert len(hub.repos) == there


# ----------------------------------------------------------------------------------------------------------- facts


def given(change):
    return {name: value for name, value in change.items() if name != "rows"}


def test_a_judge_that_no_benchmark_needs_is_no_part_of_it():
    model = EvaluatedModel("m", None, None, "ab")
    assert comparable(make_evaluation(judge=JUDGE), model)["judge"] is None


def test_other_rows_in_a_folder_of_the_same_name_are_other_rows(tmp_path):
    (tmp_path / "rows").mkdir()
    found = []
    for content in ("1", "1", "22"):
        (tmp_path / "rows" / "test.json").write_text(content)
        facts = comparable(make_evaluation(data={"chartqa": tmp_path / "rows"}), EvaluatedModel("m", None, None, "ab"))
        found.append(facts["rows"]["chartqa"])
    assert found[0] == found[1] != found[2]


def test_what_the_runs_have_in_common_is_all_that_changes_a_score():
    model = EvaluatedModel("you/model", Path("/cache"), "c0ffee", "abcd")
    facts = comparable(make_evaluation(), model)
    assert facts["model"] == {"name": "you/model", "revision": "c0ffee", "fingerprint": "abcd"}
    assert facts["judge"] is None
    changes = [
        {"backend": "vllm"},
        {"limit": 3},
        {"generation": Generation(top_p=1)},
        {"instruction": "Think."},
        {"system_prompt": "Be brief."},
        {"data": {"chartqa": Path("some/rows")}, "rows": ...},
        {"model_args": {"max_pixels": 1}},
        {"batch_size": 1},
        {"judge": JUDGE, "tasks": ["mathverse"]},
    ]
    others = [comparable(make_evaluation(**given(change)), model) for change in changes]
    differing = [[name for name in facts if facts[name] != other[name]] for other in others]
    assert differing == [[name for name in change if name != "tasks"] for change in changes]
    assert facts["versions"] == versions()
    for neutral in ({"device": "cpu"}, {"command": "x"}, {"output": Path("other")}):
        assert comparable(make_evaluation(**neutral), model) == facts


def test_rows_and_judge_are_named_without_the_place_of_this_machine_and_without_a_key(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-secret")
    facts = comparable(
        make_evaluation(data={"chartqa": Path("/home/you/rows")}, judge=JUDGE, tasks=["chartqa", "mathvista"]),
        EvaluatedModel("m", None, None, "ab"),
    )
    assert facts["data"] == {"chartqa": "rows"}
    assert facts["judge"] == {"model": JUDGE.model, "url": JUDGE.url}


def test_the_versions_are_of_what_is_installed(tmp_path, monkeypatch):
    found = versions()
    assert found["trl-vade"]
    assert found["trl"].startswith("1.")
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site", "0.8.0"))
    assert versions() == found | {"lmms-eval": "0.8.0"}
