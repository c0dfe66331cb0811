"""The tasks in `eval/tasks/`, the folder in which lmms-eval finds them, and the rows that they are given."""

import os
import sys
from pathlib import Path

import pytest
import yaml
from datasets import Dataset, DatasetDict, load_dataset

from tests.support.evaluations import install_lmms_eval
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.lmms import scoring as lmms_scoring
from trl_vade.evaluation.lmms.tasks import THOUGHTFUL, check_rows, default_rows, rows_digest, task_folder

TASKS = Path(__file__).parents[3] / "eval" / "tasks"
OWN = ("testbed", "mixture")
"""Benchmarks of which lmms-eval has none."""


class Loader(yaml.SafeLoader):
    """Reads `!function module.name` as that text."""


Loader.add_constructor("!function", lambda loader, node: f"!function {node.value}")


def task(name):
    return yaml.load((TASKS / f"vade_{name}.yaml").read_text(encoding="utf-8"), Loader)


def functions(value):
    """All that a task calls, wherever it stands in it."""
    if isinstance(value, dict | list):
        return [name for part in (value.values() if isinstance(value, dict) else value) for name in functions(part)]
    return [value.removeprefix("!function ")] if str(value).startswith("!function ") else []


# -------------------------------------------------------------------------------------------------------- eval/tasks


def test_there_is_a_task_for_each_benchmark_and_no_other():
    assert sorted(path.name for path in TASKS.iterdir()) == sorted(f"{part.task}.yaml" for part in BENCHMARKS.values())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_task_has_its_benchmarks_name_and_calls_what_there_is(name):
    content, benchmark = task(name), BENCHMARKS[name]
    assert content["task"] == benchmark.task
    called = functions(content)
    assert f"trl_vade.evaluation.lmms.scoring.{name.removesuffix('_img')}" in called
    for function in called:
        module, _, function = function.rpartition(".")
        assert module == "trl_vade.evaluation.lmms.scoring"
        assert callable(getattr(lmms_scoring, function))
    assert content["reasoning_tags"] == "none"  # else lmms-eval takes a part of the text before we do
    if name in OWN:
        assert "include" not in content
        assert (content["test_split"], content["doc_to_target"]) == (benchmark.split, benchmark.column)
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


def test_the_folder_has_a_task_for_each_benchmark_whose_includes_lead_to_lmms_evals(builtin, tmp_path):
    (builtin / "chartqa").mkdir()
    (builtin / "chartqa" / "chartqa.yaml").write_text("task: chartqa\n")
    chosen = [BENCHMARKS["chartqa"], BENCHMARKS["testbed"]]
    with task_folder(chosen, {"testbed": tmp_path}) as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["vade_chartqa.yaml", "vade_testbed.yaml"]
        first = yaml.safe_load((folder / "vade_chartqa.yaml").read_text())
        assert first == {"include": first["include"], "task": "vade_chartqa"}  # its rows are the Hub's
        ours = Path(first["include"])
        assert ours.read_text() == (TASKS / "vade_chartqa.yaml").read_text()
        theirs = ours.parent / yaml.load(ours.read_text(), Loader)["include"]  # lmms-eval looks beside the file
        assert theirs.read_text() == "task: chartqa\n"
    assert not folder.exists()
    assert (builtin / "chartqa" / "chartqa.yaml").exists()  # only the links went


def test_given_rows_take_the_place_of_the_hubs(builtin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet, saved = Path("rows"), Path("saved")
    parquet.mkdir()
    DatasetDict(test=Dataset.from_list([{"answer": "4"}])).save_to_disk(saved)
    given = {"chartqa": parquet, "scienceqa": saved}
    with task_folder([BENCHMARKS["chartqa"], BENCHMARKS["scienceqa"]], given) as folder:
        tasks = {name: yaml.safe_load((folder / f"vade_{name}.yaml").read_text()) for name in given}
    for name, arguments in {"chartqa": {"token": False}, "scienceqa": {"load_from_disk": True}}.items():
        rest = {"dataset_path": str(tmp_path / given[name]), "dataset_name": None, "dataset_kwargs": arguments}
        assert {part: tasks[name][part] for part in rest} == rest


def words_of(names, **options):
    """What each task says around a question, where that is not lmms-eval's own."""
    with task_folder([BENCHMARKS[name] for name in names], {}, **options) as folder:
        tasks = {name: yaml.safe_load((folder / f"vade_{name}.yaml").read_text()) for name in names}
    return {name: task.get("lmms_eval_specific_kwargs", {}).get("default") for name, task in tasks.items()}


def test_a_model_that_is_asked_to_think_is_not_asked_for_a_single_word(builtin):
    found = words_of(BENCHMARKS, asked_to_think=True)
    assert found["chartqa"] == {"pre_prompt": "", "post_prompt": ""}
    letter = "\nAnswer with the option's letter from the given choices."
    assert found["scienceqa"] == {"format": "default", "pre_prompt": "", "post_prompt": letter}
    assert found["scienceqa_img"] == found["scienceqa"]
    assert found["mathvision"] == found["mathvision_rules"]
    assert {name for name, words in found.items() if words} == THOUGHTFUL.keys()
    said = " ".join(text for words in found.values() for text in (words or {}).values())
    assert "single word" not in said
    assert "directly" not in said
    assert set(words_of(BENCHMARKS).values()) == {None}  # those are lmms-eval's own


def test_the_folder_goes_also_where_the_evaluation_fails(builtin):
    with pytest.raises(KeyboardInterrupt), task_folder([BENCHMARKS["chartqa"]], {}) as folder:
        raise KeyboardInterrupt
    assert not folder.parent.exists()


def test_without_lmms_eval_there_is_no_folder(monkeypatch):
    monkeypatch.setitem(sys.modules, "lmms_eval", None)
    with refused(ConfigurationError, ["lmms-eval"], ['pip install "trl-vade[eval]"']), task_folder([], {}):
        raise AssertionError("not reached")


# --------------------------------------------------------------------------------------------------------- its rows


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def rows(**columns):
    return Dataset.from_dict({name: [value] for name, value in columns.items()})


def save(folder, form, **splits):
    if form == "saved":
        DatasetDict(splits).save_to_disk(folder)
        return folder
    (folder / "data").mkdir(parents=True)
    for name, split in splits.items():
        split.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
    return folder


def no_rows(name, folder, *names):
    benchmark = BENCHMARKS[name]
    needed = [f"'{benchmark.split}'", f"'{benchmark.column}'"]
    with refused(ConfigurationError, [f"--data {name}={folder}", *names], needed):
        check_rows(benchmark, folder)


@pytest.mark.parametrize("form", ["parquet", "saved"])
def test_rows_need_the_split_and_the_column_and_the_refusal_says_what_there_is(tmp_path, form):
    for name in ("chartqa", "mathvista", "mixture"):
        splits = {"train": rows(answer="1"), BENCHMARKS[name].split: rows(answer="4")}
        check_rows(BENCHMARKS[name], save(tmp_path / name, form, **splits))
    no_rows("chartqa", save(tmp_path / "rows", form, train=rows(answer="4", question="2?")), "train: answer, question")
    no_rows("chartqa", save(tmp_path / "other", form, test=rows(label="4")), "test: label")


def test_a_split_of_a_rare_name_is_found_in_the_folder_data_alone_which_the_message_says(tmp_path):
    folder = save(tmp_path / "rows", "parquet", testmini=rows(answer="4"))
    check_rows(BENCHMARKS["mathvista"], folder)
    (folder / "data" / "testmini-00000-of-00001.parquet").rename(folder / "testmini-00000-of-00001.parquet")
    no_rows("mathvista", folder, "train: answer", "data/testmini-00000-of-00001.parquet")


def test_a_single_split_saved_by_itself_has_no_name_and_is_refused(tmp_path):
    rows(answer="4").save_to_disk(tmp_path / "rows")
    no_rows("chartqa", tmp_path / "rows", "no splits")


def test_a_folder_that_is_no_data_set_and_what_is_no_folder_are_refused(tmp_path):
    for number, content in enumerate([{}, {"notes.txt.gz": b"no data"}, {"test-0.parquet": b"PAR1 cut"}]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for name, data in content.items():
            (folder / name).write_bytes(data)
        no_rows("chartqa", folder, "`datasets`", "save_to_disk()")
    (tmp_path / "file").touch()
    for name in ("file", "nothing"):
        no_rows("chartqa", tmp_path / name)


def test_any_other_byte_or_name_is_another_set_of_rows_and_another_time_or_place_is_not(tmp_path):
    """Parquet files of other answers may have the same size."""
    digests = []
    for place, name, content in [("a", "x", b"1"), ("b", "x", b"1"), ("c", "x", b"2"), ("d", "y", b"1")]:
        folder = tmp_path / place / "data"
        folder.mkdir(parents=True)
        (folder / f"{name}.parquet").write_bytes(bytes(2**20) + content + bytes(2**20))
        (folder / ".lock").write_bytes(place.encode())  # what a client leaves beside them
        os.utime(folder / f"{name}.parquet", (1, len(digests)))
        digests.append(rows_digest(folder.parent))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    (tmp_path / "a" / "data" / "more.parquet").touch()
    assert rows_digest(tmp_path / "a") not in digests
    assert len(digests[0]) == 16


def test_the_testbeds_rows_are_made_once_and_are_those_that_the_training_validates_on(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    folder = default_rows(["chartqa", "testbed"])["testbed"]
    check_rows(BENCHMARKS["testbed"], folder)
    from trl_vade.testbed import load_testbed_dataset

    trained = load_testbed_dataset()["validation"]
    loaded = load_dataset(str(folder))["validation"]
    assert loaded["id"] == trained["id"]
    assert loaded[0]["images"][0].tobytes() == trained[0]["images"][0].tobytes()
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert default_rows(["testbed"]) == {"testbed": folder}
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written


def test_nothing_is_made_for_benchmarks_whose_rows_are_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    assert default_rows(["chartqa", "mixture"]) == {}
    assert not (tmp_path / "home").exists()
