"""An evaluation from the settings to the results: what is run, what is kept, what is refused.

lmms-eval's place is taken by small real processes, see test_eval_process.py: they leave the files of a run as it does,
or not. That lmms-eval seems to be installed is all that `check` asks. The real one is in tests/lmms.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.evaluations import (
    MODEL,
    RUNNER,
    finish,
    install_lmms_eval,
    kept,
    logs,
    pairs,
    results_file,
    small_evaluation,
    write_run,
    write_runner,
)
from tests.support.loopback_judge import LoopbackJudge
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError, JudgeError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.lmms.tasks import default_rows
from trl_vade.evaluation.models import find_model
from trl_vade.evaluation.results.runs import finished_run, read_run, run_folder
from trl_vade.evaluation.results.summary import write_results
from trl_vade.evaluation.results.table import read_results
from trl_vade.evaluation.run import _planned, evaluate
from trl_vade.evaluation.settings import Generation


@pytest.fixture
def evaluation(tmp_path):
    return small_evaluation(tmp_path)


# ------------------------------------------------------------------------------------------------ what lmms-eval gets


def options(words):
    """`--name value` by name; the last word is a switch."""
    assert words[-1] == "--log_samples"
    return dict(zip(words[:-1:2], words[1:-1:2], strict=True))


def test_a_run_has_its_own_empty_folder_and_its_seed(evaluation):
    folder = run_folder(evaluation.output, BENCHMARKS["chartqa"], 3)
    write_run(folder)  # of a command that was cut short, to whose samples lmms-eval would append
    run = _planned(evaluation, MODEL, BENCHMARKS["chartqa"], 3)
    assert list(folder.iterdir()) == []
    assert (run["task"], run["judged"], run["folder"]) == ("vade_chartqa", False, str(folder))
    assert _planned(evaluation, MODEL, BENCHMARKS["mathvista"], 3)["judged"]
    assert options(run["options"]) == {
        "--model": "qwen2_5_vl",
        "--model_args": "pretrained=you_model",
        "--tasks": "vade_chartqa",
        "--output_path": ".",  # lmms-eval splits a path at its commas; `lmms_runner` changes into the folder
        "--seed": "3",
        "--gen_kwargs": "temperature=0.6,top_p=0.95,top_k=0,max_new_tokens=2048,repetition_penalty=1.0",
        "--batch_size": "8",
        "--timezone": "UTC",
    }
    assert json.loads(json.dumps(run)) == run


def test_an_engine_is_given_the_seed_with_each_request_and_a_limit_and_a_whole_path(evaluation, monkeypatch, tmp_path):
    """Seeding the process, which is enough for transformers, does not reach another one. It may be elsewhere, too."""
    monkeypatch.chdir(tmp_path)
    for backend, name in (("vllm", "vllm"), ("server", "openai")):
        asked = replace(evaluation, backend=backend, limit=5, output=Path("out"))
        run = _planned(asked, MODEL, BENCHMARKS["chartqa"], 3)
        found = options(run["options"])
        assert (found["--model"], found["--limit"]) == (name, "5")
        assert found["--gen_kwargs"].endswith("repetition_penalty=1.0,seed=3")
        assert run["folder"] == str(tmp_path / "out" / "runs" / "chartqa-seed3")


def test_the_name_of_a_model_cannot_become_another_argument(evaluation):
    run = _planned(evaluation, replace(MODEL, name="a,device=x/\u00e9 b"), BENCHMARKS["chartqa"], 0)
    assert options(run["options"])["--model_args"] == "pretrained=a_device_x_\u00e9_b"


# ---------------------------------------------------------------------------------------------- whole evaluations


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory in which lmms-eval's process leaves the runs in `made`, but for those named in `fails`."""
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_runner(tmp_path, RUNNER)
    (tmp_path / "fails").mkdir()
    return tmp_path


def own(evaluation):
    """Write down that the directory is of this evaluation."""
    kept(evaluation, find_model(evaluation.model, backend=evaluation.backend))


def test_by_default_a_benchmark_whose_figures_in_the_paper_are_greedy_has_one_greedy_run(here, evaluation):
    evaluation = replace(
        evaluation, generation=Generation(), tasks=("chartqa", "testbed"), data=default_rows(["testbed"])
    )
    own(evaluation)
    finish(evaluation)
    shutil.rmtree(run_folder(evaluation.output, BENCHMARKS["chartqa"], 1))
    runs = []
    results = evaluate(evaluation, runs.append)
    assert [(run.benchmark.name, run.seed) for run in runs] == [("chartqa", 0), ("testbed", 0), ("testbed", 1)]
    assert not (evaluation.output / "logs").exists()
    assert results["benchmarks"]["chartqa"]["decoding"] == "greedy, repetition penalty 1"
    sampling = [
        options(_planned(evaluation, MODEL, BENCHMARKS[n], 0)["options"])["--gen_kwargs"]
        for n in ("chartqa", "testbed")
    ]
    assert [words.split(",")[0] for words in sampling] == ["temperature=0.0", "temperature=0.6"]


def test_where_all_runs_are_finished_nothing_is_started_and_the_results_are_theirs(here, evaluation):
    own(evaluation)
    finish(evaluation)
    seen = []
    results = evaluate(replace(evaluation, command="trl-vade evaluate ..."), seen.append)
    assert [(run.benchmark, run.seed) for run in seen] == pairs(evaluation)
    assert not (evaluation.output / "logs").exists()
    assert read_results(evaluation.output) == results
    found = find_model(evaluation.model, backend="transformers")
    assert results["model"] == {"name": "tiny", "revision": None, "fingerprint": found.fingerprint}
    chartqa = results["benchmarks"]["chartqa"]
    assert [run["score"] for run in chartqa["runs"]] == [75.0, 50.0]
    assert (chartqa["mean"], chartqa["stderr"], chartqa["questions"]) == (62.5, 12.5, 4)
    assert (results["seeds"], results["command"], results["limit"]) == ([0, 1], "trl-vade evaluate ...", None)
    assert results["versions"]["lmms-eval"] == "0.7.3"
    assert chartqa["decoding"] == "temperature 0.6, top-p 0.95, repetition penalty 1"
    assert results["started"] <= results["finished"]
    assert "62.50" in (evaluation.output / "results.md").read_text(encoding="utf-8")


def test_from_nothing_all_runs_are_done_seed_by_seed_in_one_process(here, evaluation):
    finish(evaluation, here / "made")
    seen = []
    results = evaluate(evaluation, seen.append)
    names = ["scienceqa-seed0", "chartqa-seed0", "scienceqa-seed1", "chartqa-seed1"]
    assert logs(evaluation) == [[f"evaluating {name}" for name in names]]
    assert [f"{run.benchmark.name}-seed{run.seed}" for run in seen] == names
    runs = [read_run(run_folder(evaluation.output, *pair), *pair, None) for pair in pairs(evaluation)]
    shutil.copytree(evaluation.output, here / "again")
    facts = {
        name: value
        for name, value in results.content.items()
        if name not in ("format", "benchmarks", "average", "digest")
    }
    facts["decoding"] = {name: part["decoding"] for name, part in results["benchmarks"].items()}
    assert write_results(evaluation.output, facts, runs) == results
    assert (evaluation.output / "results.json").read_bytes() == (here / "again" / "results.json").read_bytes()


def test_the_process_is_told_what_was_asked_for(here, evaluation):
    finish(evaluation, here / "made")
    asked = {"instruction": "Think.", "system_prompt": "Be brief.", "device": "cpu", "model_args": {"max_pixels": 9}}
    evaluate(replace(evaluation, **asked, batch_size=3))
    plan = json.loads((here / "last-plan.json").read_text())
    assert plan["model"] == "qwen2_5_vl"
    assert plan["arguments"] == {"pretrained": str(here / "models" / "tiny"), "batch_size": 3, "max_pixels": 9}
    assert {name: plan[name] for name in ("instruction", "system_prompt", "device")} == {
        "instruction": "Think.",
        "system_prompt": "Be brief.",
        "device": "cpu",
    }
    assert not Path(plan["tasks"]).exists()  # of this evaluation alone, which is over
    task = (here / "last-tasks" / "vade_chartqa.yaml").read_text()
    assert "lmms_eval_specific_kwargs" in task  # lmms-eval's own words ask for a single one, against "Think."


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
    seen = []
    evaluate(evaluation, seen.append)
    todo = ["chartqa-seed0", "scienceqa-seed1", "chartqa-seed1"]
    assert logs(evaluation) == [[f"evaluating {name}" for name in todo]]
    assert [f"{run.benchmark.name}-seed{run.seed}" for run in seen] == ["scienceqa-seed0", *todo]
    assert all(path.stat().st_mtime_ns == time for path, time in times.items() if path != cut)
    assert (evaluation.output / "results.json").exists()


def test_results_of_a_directory_grow_with_its_seeds(here, evaluation):
    own(evaluation)
    finish(evaluation)
    one = evaluate(evaluation)
    more = replace(evaluation, seeds=(0, 1, 2))
    finish(more, here / "made")
    assert [run["seed"] for run in evaluate(more)["benchmarks"]["chartqa"]["runs"]] == [0, 1, 2]
    assert logs(evaluation) == [["evaluating scienceqa-seed2", "evaluating chartqa-seed2"]]
    assert one["seeds"] == [0, 1]


def test_a_setting_that_cannot_work_leaves_no_directory(here, evaluation):
    with refused(ConfigurationError, ["--seeds", "0,0"]):
        evaluate(replace(evaluation, seeds=(0, 0)))
    with refused(ConfigurationError, ["--revision", "main"]):
        evaluate(replace(evaluation, revision="main"))
    assert not evaluation.output.exists()


def test_a_judge_is_asked_before_anything_starts_and_after_each_run_that_it_judged(here, evaluation):
    with LoopbackJudge() as judge:
        judged = replace(
            evaluation, tasks=("mathverse", "chartqa"), judge=Judge.of(judge.url, judge.model), seeds=(0, 1, 2)
        )
        finish(judged, here / "made")
        judge.mode = "wrong"
        with pytest.raises(JudgeError):
            evaluate(judged)
        assert not (judged.output / "logs").exists()
        judge.mode = "good"
        judge.calls = 0
        judge.fail_after(6, "dead")  # three questions a time
        with refused(JudgeError, [judge.model, judge.url]):
            evaluate(judged)
        doubtful = run_folder(judged.output, BENCHMARKS["mathverse"], 1)
        assert not (doubtful / "judge.json").exists()
        assert results_file(doubtful).exists()
        assert finished_run(doubtful, BENCHMARKS["mathverse"], 1, None) is None
        names = ["mathverse-seed0", "chartqa-seed0", "mathverse-seed1"]
        assert [line.split()[1] for line in logs(judged)[0]][:3] == names
        assert not (judged.output / "results.json").exists()
        judge.mode = "good"
        shutil.rmtree(judged.output / "logs")
        results = evaluate(judged)
        assert logs(judged)[0][0] == "evaluating mathverse-seed1"  # again
        assert results["judge"] == {"model": judge.model, "url": judge.url}
        assert judge.keys == {"EMPTY"}
        again = judge.calls
        evaluate(judged)  # nothing is left to be judged, so nobody is asked
        assert judge.calls == again


def test_the_judges_address_and_key_are_in_the_environment_and_not_in_the_plan(here, evaluation, monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-secret")
    code = f"Path('seen.json').write_text(json.dumps(dict(os.environ)))\n{RUNNER}"
    write_runner(here, code)
    with LoopbackJudge(key="sk-secret") as judge:
        judged = replace(evaluation, tasks=("mathverse",), judge=Judge.of(judge.url, judge.model), seeds=(0,))
        finish(judged, here / "made")
        evaluate(judged)
    environment = json.loads((here / "seen.json").read_text())
    assert (environment["OPENAI_API_URL"], environment["MODEL_VERSION"]) == (judge.url, judge.model)
    assert environment["OPENAI_API_KEY"] == "sk-secret"
    written = [path for path in [*judged.output.rglob("*"), here / "last-plan.json"] if path.is_file()]
    assert [path for path in written if b"sk-secret" in path.read_bytes()] == []
