"""The command `trl-vade`: what it prints, where, and with which exit code.

`evaluate` is in test_cli_evaluate.py, `posterior` in test_cli_posterior.py.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import trl_vade
from tests.support.commands import run, said
from tests.support.finished_run import write_run
from tests.support.refusals import says
from trl_vade.cli.plan import print_plan
from trl_vade.errors import (
    CheckpointIncompleteError,
    ConfigurationError,
    HubError,
    JudgeError,
    SnapshotCorruptError,
    SnapshotMismatchError,
    SnapshotNotFoundError,
)

PACKAGE = Path(trl_vade.__file__).parent


COMMANDS = ["train", "plan", "report", "evaluate"]
COMMANDS += [f"posterior {name}" for name in ("show", "push", "pull")]


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"trl-vade {trl_vade.__version__}\n"


def test_the_help_names_every_command_and_how_one_logs_in():
    text = run("--help").stdout
    for command in ("train", "plan", "report", "evaluate", "posterior"):
        assert f"\n  {command} " in text
    assert "hf auth login" in text


@pytest.mark.parametrize("command", ["", "posterior", *COMMANDS])
def test_every_command_has_examples_of_itself_two_spellings_of_help_and_takes_no_token(command):
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert result.stdout == run(*command.split(), "-h").stdout
    assert not {*"{}"} & {*result.stdout.splitlines()[0]}
    assert max(map(len, result.stdout.splitlines())) <= 80
    if command in COMMANDS:
        assert f"    trl-vade {command} " in result.stdout.split("Example")[1]
    options = re.findall(r"--[a-z_]+", result.stdout)
    assert [option for option in options if option.endswith("token")] == []


def test_options_may_be_written_with_hyphens(tmp_path):
    said(run("evaluate", "testbed", "--output-path", tmp_path, "--tasks", "nosuch"), 2, "--tasks", "nosuch", "testbed")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_and_completes_a_command(shell, monkeypatch):
    assert "trl-vade" in run("--show-completion", shell).stdout
    monkeypatch.setenv("_TRL_VADE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "trl-vade posterior s")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().stdout.split() == ["show"]


def test_what_was_given_ends_with_2_and_what_failed_with_1(monkeypatch):
    given = (ConfigurationError, SnapshotNotFoundError, CheckpointIncompleteError, SnapshotMismatchError)
    failed = (SnapshotCorruptError, HubError, JudgeError, PermissionError)
    for error in (*given, FileNotFoundError, *failed):

        def report(*arguments, error=error, **named):
            raise error("what is wrong")

        monkeypatch.setattr("trl_vade.selection.report.writing.write_report", report)
        assert said(run("report", "run"), 1 if error in failed else 2) == "Error: what is wrong\n"


def test_a_command_without_arguments_shows_its_help_and_a_slip_is_a_usage_error():
    for arguments in ([], ["plan"], ["posterior"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Usage: trl-vade" in result.output
    for arguments in (["plans"], ["report"], ["report", "a", "b"], ["posterior", "show", "x", "--sort", "y"]):
        text = said(run(*arguments), 2, "--help")
        assert text.startswith("Error: ")
        assert text.count("\n") == 1


def test_the_help_loads_nothing_heavy():
    code = "import sys, trl_vade.cli.main; print(*[name for name in ('torch', 'trl', 'transformers', 'datasets',"
    code += "'pyarrow', 'numpy', 'huggingface_hub', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_it_runs_as_a_module_too():
    command = [sys.executable, "-m", "trl_vade", "report", "no-such-folder"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, "no-such-folder")


# -------------------------------------------------------------------------------------------------------------- plan


@pytest.fixture
def recipe(tmp_path):
    """A recipe on a CPU."""
    path = tmp_path / "recipe.yaml"
    settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, "num_generations": 4, "dataset_name": "you/rows"}
    path.write_text(yaml.safe_dump(settings | {"per_device_train_batch_size": 16}))
    return path


def test_a_plan_is_what_the_script_prints(recipe, capsys):
    arguments = ["--config", str(recipe), "--plan_rows", "22", "--num_generations=8", "--beta", "-0.0"]
    result = run("plan", *arguments)
    assert result.exit_code == 0, result.output
    print_plan(arguments)
    assert result.stdout == capsys.readouterr().out
    assert "2 rows x 8 = 16 completions" in result.stdout


def test_a_plan_for_other_programs_is_json_alone(recipe):
    told = json.loads(run("plan", "--config", recipe, "--plan_rows", "22", "--json").stdout)
    assert (told["rows"], told["processes"], told["completions_per_generation_batch"]) == (22, 1, 16)


def test_a_plan_that_cannot_work_says_so(recipe):
    result = run("plan", "--config", recipe, "--plan_rows", 3)
    said(result, 2, "3 rows", "per_device_train_batch_size 16", "Add rows")
    assert result.stdout == ""


def test_a_recipe_that_is_not_there_is_said_so(tmp_path):
    said(run("plan", "--config", tmp_path / "none.yaml", "--plan_rows", 3), 2, tmp_path / "none.yaml")


# ------------------------------------------------------------------------------------------------------------ report


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_pictures")
def test_a_report_prints_the_table_and_leaves_both_files(tmp_path):
    result = run("report", write_run(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for expected in ("thompson", "62.5 %", "vade_report.png", "vade_summary.json"):
        assert expected in result.stdout
    assert json.loads((tmp_path / "out" / "vade_summary.json").read_text())["rollouts"] == 32
    assert (tmp_path / "out" / "vade_report.png").stat().st_size > 1000


def test_a_report_of_no_run_names_what_is_missing(tmp_path):
    said(run("report", tmp_path), 2, "vade_selection.jsonl", tmp_path)


def test_a_disk_that_refuses_is_a_message_and_no_traceback(tmp_path):
    folder = write_run(tmp_path / "out")
    (folder / "vade_summary.json").mkdir()
    said(run("report", folder), 1, "[Errno 21]", "vade_summary.json")
