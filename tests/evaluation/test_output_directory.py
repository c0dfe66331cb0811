"""Whose an output directory is: of one evaluation at a time, and of one with the same settings each time."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.evaluations import MODEL, finish, kept, results_file, small_evaluation, write_run
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.judge import Judge
from trl_vade.evaluation.results.runs import run_folder
from trl_vade.evaluation.run import keep_settings, owned
from trl_vade.evaluation.settings import Generation, comparable


@pytest.fixture
def evaluation(tmp_path):
    return small_evaluation(tmp_path)


# -------------------------------------------------------------------------------------- what a directory is for


def belongs_to_another(evaluation, *names, model=MODEL):
    """It is refused with a message, which names the `names`; what the directory is for stays."""
    path = evaluation.output / "evaluation.json"
    before = path.read_bytes()
    with refused(ConfigurationError, [evaluation.output, *names], ["--output_path"]) as raised:
        keep_settings(evaluation, model)
    assert path.read_bytes() == before
    return str(raised.value)


def test_a_directory_knows_what_it_is_for(evaluation):
    saved = kept(replace(evaluation, instruction="D\u00e9j\u00e0 vu?", limit=3))
    assert saved == {
        **comparable(replace(evaluation, instruction="D\u00e9j\u00e0 vu?", limit=3), MODEL),
        "tasks": ["scienceqa", "chartqa"],
        "seeds": [0, 1],
    }


def test_the_same_again_or_with_other_tasks_and_seeds_is_the_same_evaluation(evaluation):
    for changes in (
        {},
        {"seeds": (2, 0, 1)},
        {"tasks": ("chartqa", "mathvision_rules", "scienceqa"), "seeds": (0, 1, 2)},
        {"tasks": ("scienceqa", "chartqa", "testbed"), "data": {"testbed": Path("rows")}},
        {"tasks": ("scienceqa", "chartqa", "mathvista"), "judge": Judge.of("http://a:8000/v1", "judge")},
        {"device": "cpu", "command": "other"},
        {"tasks": ("chartqa",)},  # no run of the others is finished
    ):
        shutil.rmtree(evaluation.output, ignore_errors=True)
        kept(evaluation)
        more = replace(evaluation, **changes)
        saved = kept(more)
        assert (saved["tasks"], saved["seeds"]) == (list(more.tasks), list(more.seeds))
        assert kept(more) == saved


def test_the_judge_may_be_served_elsewhere_and_may_not_be_another(evaluation):
    judged = replace(evaluation, tasks=("mathvista",), judge=Judge.of("http://node-1:8000/v1", "judge"))
    kept(judged)
    finish(judged)
    moved = replace(judged, judge=Judge.of("http://node-2:8000/v1", "judge"))
    assert kept(moved)["judge"]["url"] == "http://node-2:8000/v1"
    other = replace(judged, judge=Judge.of("http://node-2:8000/v1", "another"))
    belongs_to_another(other, "judge", "'judge'", "'another'")


def test_another_evaluation_is_refused_with_both_sides_named(evaluation):
    kept(evaluation)
    write_run(run_folder(evaluation.output, BENCHMARKS["chartqa"], 1), "chartqa", 1)
    for name, (value, before, after) in {
        "generation": (Generation(temperature=0.7), "'temperature': 0.6", "'temperature': 0.7"),
        "backend": ("vllm", "transformers", "vllm"),
        "limit": (3, "None", "3"),
        "instruction": ("Think.", "None", "Think."),
        "system_prompt": ("Be brief.", "None", "Be brief."),
        "model_args": ({"max_pixels": 1}, "{}", "{'max_pixels': 1}"),
        "data": ({"chartqa": Path("mine")}, "{}", "{'chartqa': 'mine'}"),
        "batch_size": (1, "8", "1"),
    }.items():
        belongs_to_another(replace(evaluation, **{name: value}), name, before, after)


def test_where_no_run_is_finished_the_settings_may_be_mended(evaluation):
    """They may be why: a batch that does not fit into the memory, say."""
    kept(evaluation)
    cut = run_folder(evaluation.output, BENCHMARKS["scienceqa"], 0)
    write_run(cut, "scienceqa", 0)
    results_file(cut).write_bytes(b"{")
    mended = replace(evaluation, batch_size=1, tasks=("chartqa",))
    assert kept(mended, replace(MODEL, fingerprint="other"))["batch_size"] == 1


def test_what_was_asked_for_and_never_finished_may_be_left_out_and_what_is_finished_may_not(evaluation):
    kept(evaluation)
    write_run(run_folder(evaluation.output, BENCHMARKS["chartqa"], 1), "chartqa", 1)
    cut = run_folder(evaluation.output, BENCHMARKS["scienceqa"], 0)
    write_run(cut, "scienceqa", 0)
    results = results_file(cut)
    results.write_bytes(results.read_bytes()[:-10])  # its command was killed
    for fewer in ({"tasks": ("scienceqa",)}, {"seeds": (0,)}, {"tasks": ("scienceqa",), "seeds": (0,)}):
        message = belongs_to_another(replace(evaluation, **fewer), "chartqa", "seed 1")
        assert "scienceqa" not in message
        assert "seed 0" not in message
    assert kept(replace(evaluation, tasks=("chartqa",), seeds=(1,)))["tasks"] == ["chartqa"]


def test_rows_that_nothing_was_finished_with_may_be_left_out_with_their_task(evaluation, tmp_path):
    rows = {"testbed": tmp_path / "mine"}
    with_rows = replace(evaluation, tasks=("chartqa", "testbed"), data=rows)
    kept(with_rows)
    without = replace(evaluation, tasks=("chartqa",))
    assert kept(without)["data"] == {}
    kept(with_rows)
    write_run(run_folder(evaluation.output, BENCHMARKS["testbed"], 0), "testbed", 0)
    belongs_to_another(without, "testbed", "seed 0")


def test_the_same_weights_under_another_name_or_commit_are_the_same_evaluation(evaluation):
    """A push of the results is a commit; and a folder may have moved."""
    kept(evaluation)
    moved = replace(MODEL, name="local", folder=Path("/elsewhere"), revision=None)
    assert kept(evaluation, moved)["model"] == {"name": "local", "revision": None, "fingerprint": "abcd"}
    assert kept(evaluation, replace(MODEL, revision="ffff"))["model"]["revision"] == "ffff"


def test_runs_of_which_nobody_knows_the_model_are_refused(evaluation):
    """As they are left where the file was deleted to be rid of a refusal."""
    finish(evaluation)
    with refused(ConfigurationError, ["--output_path", evaluation.output, "evaluation.json"]):
        keep_settings(evaluation, MODEL)
    assert not (evaluation.output / "evaluation.json").exists()
    shutil.rmtree(evaluation.output / "runs")
    assert kept(evaluation)


def test_other_weights_under_the_same_name_are_another_evaluation(evaluation):
    kept(evaluation)
    finish(evaluation)
    belongs_to_another(evaluation, "'abcd'", "'ffff'", model=replace(MODEL, fingerprint="ffff"))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"tasks": 7}'])
def test_a_file_that_was_written_by_something_else_is_refused_and_left_alone(evaluation, content):
    evaluation.output.mkdir()
    (evaluation.output / "evaluation.json").write_text(content)
    belongs_to_another(evaluation, evaluation.output / "evaluation.json")


# ------------------------------------------------------------------------------------- one evaluation in a directory


@pytest.mark.parametrize("name", ["results.json", "no\u0308tes"])
def test_a_file_in_the_place_of_the_directory_is_refused_and_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with refused(ConfigurationError, ["--output_path", tmp_path / name], ["folder"]), owned(tmp_path / name):
        raise AssertionError("not reached")
    assert (tmp_path / name).read_text() == "mine"


def test_a_second_evaluation_in_the_same_directory_is_refused_while_the_first_goes_on(tmp_path):
    with owned(tmp_path / "a" / "b"):
        with refused(ConfigurationError, ["--output_path", tmp_path / "a/b"]), owned(tmp_path / "a/b"):
            raise AssertionError("not reached")
        with owned(tmp_path / "other"):
            pass
    with owned(tmp_path / "a" / "b"):
        pass


def test_the_directory_is_held_as_long_as_the_process_of_lmms_eval_lives(tmp_path):
    """Also where the evaluation itself was killed: a second one would write into the same runs."""
    wait = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
    with owned(tmp_path) as lock:
        child = subprocess.Popen(wait, stdin=subprocess.PIPE, pass_fds=[lock.fileno()])
    with refused(ConfigurationError, ["--output_path", tmp_path]), owned(tmp_path):
        raise AssertionError("not reached")
    child.communicate()
    with owned(tmp_path):
        pass
