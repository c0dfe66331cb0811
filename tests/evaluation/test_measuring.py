"""An evaluation from the settings to the results: what is run, what is kept, what is refused.

lmms-eval's place is taken by small real processes, see test_lmms_process.py: they leave the files of a run as it does,
or not. That lmms-eval seems to be installed is all that `check` asks. The real one is in tests/lmms.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.evaluations import (
    FILES,
    RUNNER,
    finish,
    install_lmms_eval,
    logs,
    pairs,
    results_file,
    write,
    write_run,
    write_runner,
)
from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError, JudgeError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.measuring import _planned, evaluate, keep_settings, shared_facts
from trl_vade.evaluation.results import read_results
from trl_vade.evaluation.run_files import read_run, run_folder
from trl_vade.evaluation.settings import EvaluatedModel, Evaluation, Generation, check, find_model


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory in which lmms-eval's process leaves the runs in `made`, but for those named in `fails`."""
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_runner(tmp_path, RUNNER)
    (tmp_path / "fails").mkdir()
    return tmp_path


@pytest.fixture
def evaluation(tmp_path):
    """Of a model in a folder, on two benchmarks with two seeds."""
    model = str(write(tmp_path / "models" / "tiny", FILES))
    return Evaluation(model, tmp_path / "out", ("scienceqa", "chartqa"), seeds=(0, 1), generation=Generation(0.6))


def own(evaluation, **model):
    """Write down that the directory is of this evaluation, and return what is written."""
    found = replace(EvaluatedModel("you/model", None, "c0ffee", "abcd"), **model) if model else find_model(evaluation)
    keep_settings(evaluation.output, shared_facts(evaluation, found, check(evaluation)))
    return json.loads((evaluation.output / "evaluation.json").read_text(encoding="utf-8"))


def test_a_run_has_its_own_empty_folder_and_a_seed_that_reaches_the_server(evaluation):
    folder = run_folder(evaluation.output, BENCHMARKS["chartqa"], 3)
    write_run(folder)  # of a command that was cut short, to whose samples lmms-eval would append
    run = _planned(replace(evaluation, backend="server"), BENCHMARKS["chartqa"], 3)
    assert list(folder.iterdir()) == []
    assert (run["judged"], run["folder"]) == (False, str(folder))
    assert any(word.endswith("repetition_penalty=1.0,seed=3") for word in run["options"])
    greedy = _planned(replace(evaluation, generation=Generation()), BENCHMARKS["chartqa"], 0)
    assert any(word.startswith("temperature=0.0,") for word in greedy["options"])


def test_from_nothing_all_runs_are_done_seed_by_seed_in_one_process(here, evaluation):
    finish(evaluation, here / "made")
    asked = {"instruction": "Think.", "system_prompt": "Be brief.", "model_args": {"max_pixels": 9}, "batch_size": 3}
    asked = replace(evaluation, **asked, command="trl-vade evaluate ...")
    seen = []
    results = evaluate(asked, seen.append)
    names = ["scienceqa-seed0", "chartqa-seed0", "scienceqa-seed1", "chartqa-seed1"]
    assert logs(evaluation) == [[f"evaluating {name}" for name in names]]
    assert [f"{run.benchmark.name}-seed{run.seed}" for run in seen] == names
    plan = json.loads((here / "last-plan.json").read_text())
    assert (plan["model"], plan["instruction"], plan["system_prompt"]) == ("qwen2_5_vl", "Think.", "Be brief.")
    assert plan["arguments"] == {"pretrained": str(here / "models" / "tiny"), "batch_size": 3, "max_pixels": 9}
    assert not Path(plan["tasks"]).exists()  # of this evaluation alone, which is over
    assert read_results(evaluation.output) == results
    assert results["model"]["name"] == "tiny"
    chartqa = results["benchmarks"]["chartqa"]
    assert [run["score"] for run in chartqa["runs"]] == [75.0, 50.0]
    assert (chartqa["mean"], chartqa["stderr"], chartqa["questions"]) == (62.5, 12.5, 4)
    assert chartqa["decoding"] == "temperature 0.6, top-p 0.95, repetition penalty 1"
    assert (results["seeds"], results["command"], results["limit"]) == ([0, 1], "trl-vade evaluate ...", None)
    assert results["versions"]["lmms-eval"] == "0.7.3"
    assert results["started"] <= results["finished"]
    shutil.rmtree(evaluation.output / "logs")
    assert evaluate(asked, seen.append)["benchmarks"] == results["benchmarks"]
    assert not (evaluation.output / "logs").exists()  # all was finished, so nothing was started
    assert [(run.benchmark, run.seed) for run in seen[4:]] == pairs(evaluation)


def test_what_was_finished_is_kept_and_only_the_rest_is_done_by_the_same_command(here, evaluation):
    finish(evaluation, here / "made")
    stumble = here / "fails" / "scienceqa-seed1"
    stumble.touch()
    with refused(EvaluationError, ["exit code 0", "scienceqa-seed1"]):
        evaluate(evaluation)
    assert not (evaluation.output / "results.json").exists()
    times = {path: path.stat().st_mtime_ns for path in evaluation.output.rglob("*_results.json")}
    assert len(times) == 2
    stumble.unlink()
    cut = results_file(evaluation.output / "runs" / "chartqa-seed0")  # which the disk did not get in whole
    cut.write_bytes(cut.read_bytes()[:-10])
    shutil.rmtree(evaluation.output / "logs")
    evaluate(evaluation)
    [lines] = logs(evaluation)
    assert lines == [f"evaluating {name}" for name in ("chartqa-seed0", "scienceqa-seed1", "chartqa-seed1")]
    assert all(path.stat().st_mtime_ns == time for path, time in times.items() if path != cut)
    assert (evaluation.output / "results.json").exists()


def test_a_judge_is_asked_before_anything_starts_and_after_each_run_that_it_judged(here, evaluation, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-secret")
    write_runner(here, f"Path('seen.json').write_text(json.dumps(dict(os.environ)))\n{RUNNER}")
    with LoopbackJudge(key="sk-secret") as judge:
        tasks = ("mathverse", "chartqa")
        judged = replace(evaluation, tasks=tasks, judge=Judge(judge.url, judge.model), seeds=(0, 1, 2))
        finish(judged, here / "made")
        judge.mode = "wrong"
        with pytest.raises(JudgeError):
            evaluate(judged)
        assert not (judged.output / "logs").exists()
        judge.mode = "good"
        judge.calls = 0
        judge.fail_after(4, "dead")  # two questions a time
        with refused(JudgeError, [judge.model, judge.url]):
            evaluate(judged)
        doubtful = run_folder(judged.output, BENCHMARKS["mathverse"], 1)
        assert results_file(doubtful).exists()
        with refused(EvaluationError, ["judge.json"]):
            read_run(doubtful, BENCHMARKS["mathverse"], 1, None)
        names = ["mathverse-seed0", "chartqa-seed0", "mathverse-seed1"]
        assert [line.split()[1] for line in logs(judged)[0]][:3] == names
        assert not (judged.output / "results.json").exists()
        judge.mode = "good"
        shutil.rmtree(judged.output / "logs")
        assert evaluate(judged)["judge"] == {"model": judge.model, "url": judge.url}
        assert logs(judged)[0][0] == "evaluating mathverse-seed1"  # again
        again = judge.calls
        evaluate(judged)  # nothing is left to be judged, so nobody is asked
        assert judge.calls == again
    environment = json.loads((here / "seen.json").read_text())
    assert (environment["OPENAI_API_URL"], environment["MODEL_VERSION"]) == (judge.url, judge.model)
    assert environment["OPENAI_API_KEY"] == "sk-secret"
    written = [path for path in [*judged.output.rglob("*"), here / "last-plan.json"] if path.is_file()]
    assert [path for path in written if b"sk-secret" in path.read_bytes()] == []


def test_the_same_again_or_with_more_tasks_and_seeds_is_the_same_evaluation(here, evaluation):
    mine = write(here / "mine", FILES)
    for changes in (
        {},
        {"seeds": (2, 0, 1)},
        {"tasks": ("chartqa", "mathvision_rules"), "seeds": (0, 1, 2)},
        {"tasks": ("chartqa", "mixture"), "data": {"mixture": mine}},
        {"tasks": ("chartqa", "mathvista"), "judge": Judge("http://a:8000/v1", "judge")},
        {"command": "other"},
    ):
        shutil.rmtree(evaluation.output, ignore_errors=True)
        own(evaluation)
        finish(evaluation)
        more = replace(evaluation, **changes)
        assert own(more) == own(more)
    judged = replace(evaluation, tasks=("mathvista",), judge=Judge("http://b:8000/v1", "judge"))
    own(judged)  # the judge may be served elsewhere; and the same weights may have another name, place or commit
    own(judged, fingerprint=find_model(evaluation).fingerprint, name="local", revision="ffff")


def test_another_evaluation_is_refused_with_both_sides_named_unless_no_run_is_there(here, evaluation):
    judge, mine = Judge("http://a:8000/v1", "judge"), write(here / "mine", FILES)
    first = replace(evaluation, tasks=("chartqa", "mathvista"), judge=judge, data={"chartqa": mine})
    own(first)
    write_run(run_folder(first.output, BENCHMARKS["chartqa"], 1), "chartqa", 1)
    before = (first.output / "evaluation.json").read_bytes()
    for name, value, *sides in (
        ("generation", Generation(temperature=0.7), "'temperature': 0.6", "'temperature': 0.7"),
        ("backend", "vllm", "transformers", "vllm"),
        ("limit", 3, "None", "3"),
        ("instruction", "Think.", "None", "Think."),
        ("system_prompt", "Be brief.", "None", "Be brief."),
        ("model_args", {"max_pixels": 1}, "{}", "{'max_pixels': 1}"),
        ("batch_size", 1, "8", "1"),
        ("judge", Judge("http://a:8000/v1", "another"), "judge", "another"),
    ):
        with refused(ConfigurationError, ["--output_path", first.output, name, *sides]):
            own(replace(first, **{name: value}))
    with refused(ConfigurationError, ["weights", "ffff"]):
        own(first, fingerprint="ffff")
    os.utime(mine / "config.json", (1, 1))
    with refused(ConfigurationError, ["rows of chartqa"]):
        own(first)
    assert (first.output / "evaluation.json").read_bytes() == before
    (first.output / "evaluation.json").unlink()  # to be rid of a refusal
    with refused(ConfigurationError, ["--output_path", first.output]):
        own(first)
    shutil.rmtree(first.output / "runs")
    assert own(replace(first, batch_size=1))["batch_size"] == 1
