"""The tasks in `eval/tasks/`, and the folder in which lmms-eval finds them with the rows that they are given."""

from pathlib import Path

import pytest
import yaml
from datasets import Dataset, DatasetDict, load_dataset

from tests.support.evaluations import install_lmms_eval
from trl_vade.evaluation import scoring
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.settings import Evaluation
from trl_vade.evaluation.tasks import THOUGHTFUL, task_folder, testbed_rows

testbed_rows.__test__ = False
TASKS = Path(__file__).parents[2] / "eval" / "tasks"
OWN = ("testbed", "mixture")
"""Benchmarks of which lmms-eval has none."""


class Loader(yaml.SafeLoader):
    """Reads `!function module.name` as that text."""


Loader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


def functions(value):
    """All that a task calls, wherever it stands in it."""
    if isinstance(value, dict | list):
        return [name for part in (value.values() if isinstance(value, dict) else value) for name in functions(part)]
    return [value.removeprefix("!function ")] if str(value).startswith("!function ") else []


def test_there_is_a_task_for_each_benchmark_and_no_other():
    assert sorted(path.name for path in TASKS.iterdir()) == sorted(f"{part.task}.yaml" for part in BENCHMARKS.values())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_task_has_its_benchmarks_name_and_calls_what_there_is(name):
    content = yaml.load((TASKS / f"vade_{name}.yaml").read_text(encoding="utf-8"), Loader)
    benchmark, called = BENCHMARKS[name], functions(content)
    assert content["task"] == benchmark.task
    assert f"trl_vade.evaluation.scoring.{name.removesuffix('_img')}" in called
    for function in called:
        module, _, function = function.rpartition(".")
        assert module == "trl_vade.evaluation.scoring"
        assert callable(getattr(scoring, function))
    assert content["reasoning_tags"] == "none"  # else lmms-eval takes a part of the text before we do
    if name in OWN:
        assert "include" not in content
        assert (content["test_split"], content["doc_to_target"]) == (benchmark.split, "answer")
        assert content["output_type"] == "generate_until"
    else:
        assert content["include"].startswith("lmms_eval/")
        assert content["dataset_kwargs"] == {"token": False}  # and needs no login
        assert not {"dataset_path", "test_split", "doc_to_text"} & content.keys()  # those stay as they are
    if "metric_list" in content:
        metrics = {part["metric"]: part for part in content["metric_list"]}
        assert benchmark.metric in metrics
        assert all(part["higher_is_better"] for part in metrics.values())


# ------------------------------------------------------------------------------------------------- lmms-eval's folder


@pytest.fixture
def builtin(tmp_path, monkeypatch):
    """The folder of lmms-eval's own tasks, where the package is nothing but a name."""
    site = install_lmms_eval(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    return site / "lmms_eval" / "tasks"


def written(names, **options):
    """The tasks in the folder, by benchmark."""
    with task_folder(Evaluation("m", Path("o"), **options), [BENCHMARKS[name] for name in names]) as folder:
        assert sorted(path.name for path in folder.iterdir()) == sorted(f"vade_{name}.yaml" for name in names)
        tasks = {name: yaml.load((folder / f"vade_{name}.yaml").read_text(), Loader) for name in names}
    assert not folder.exists()
    return tasks


def test_a_task_includes_lmms_evals_and_given_rows_take_the_place_of_the_hubs(builtin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet, saved = Path("rows"), Path("saved")
    parquet.mkdir()
    DatasetDict(test=Dataset.from_list([{"answer": "4"}])).save_to_disk(saved)
    tasks = written(["chartqa", "scienceqa", "mathvista"], data={"chartqa": parquet, "scienceqa": saved})
    assert tasks["mathvista"]["include"] == f"{builtin}/mathvista/mathvista_testmini_cot.yaml"
    assert "dataset_path" not in tasks["mathvista"]
    for name, place, arguments in (
        ("chartqa", parquet, {"token": False}),
        ("scienceqa", saved, {"load_from_disk": True}),
    ):
        rows = {"dataset_path": str(tmp_path / place), "dataset_name": None, "dataset_kwargs": arguments}
        assert {part: tasks[name][part] for part in rows} == rows


def test_a_model_that_is_asked_to_think_is_not_asked_for_a_single_word(builtin, monkeypatch):
    monkeypatch.setattr("trl_vade.evaluation.tasks.testbed_rows", lambda: Path("testbed"))
    tasks = written(BENCHMARKS, instruction="Think.")
    found = {name: task.get("lmms_eval_specific_kwargs", {}).get("default") for name, task in tasks.items()}
    assert {name for name, words in found.items() if words} == THOUGHTFUL.keys()
    said = " ".join(text for words in found.values() for text in (words or {}).values())
    assert "single word" not in said
    assert "directly" not in said
    assert not any("lmms_eval_specific_kwargs" in task for task in written(BENCHMARKS).values())


def test_the_testbeds_rows_are_made_once_and_are_those_that_the_training_validates_on(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = testbed_rows()
    from trl_vade.testbed import load_testbed_dataset

    trained = load_testbed_dataset()["validation"]
    loaded = load_dataset(str(folder))["validation"]
    assert loaded["id"] == trained["id"]
    assert loaded[0]["images"][0].tobytes() == trained[0]["images"][0].tobytes()
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert testbed_rows() == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
