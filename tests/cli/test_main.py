"""The command `trl-vade`: what it prints, where, and with which exit code.

`evaluate` is in test_cli_evaluate.py, `posterior` in test_cli_posterior.py.
"""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import trl_vade
from tests.support.commands import run, said
from tests.support.finished_run import write_run
from tests.support.refusals import says
from trl_vade.cli.plan.command import print_plan
from trl_vade.cli.training_arguments import CommandArguments

PACKAGE = Path(trl_vade.__file__).parent


COMMANDS = ["train", "plan", "report", "evaluate", "variants"]
COMMANDS += [f"posterior {name}" for name in ("show", "push", "pull", "diff", "export")]


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"trl-vade {trl_vade.__version__}\n"


def test_the_help_names_every_command_and_how_one_logs_in():
    text = run("--help").stdout
    for command in ("train", "plan", "report", "evaluate", "variants", "posterior"):
        assert f"\n  {command} " in text
    assert "hf auth login" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_of_itself(command):
    text = run(*command.split(), "--help").stdout
    assert f"    trl-vade {command} " in text.split("Example")[1]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_takes_a_token(command):
    options = re.findall(r"--[a-z_]+", run(*command.split(), "--help").stdout)
    assert [option for option in options if option.endswith("token")] == []


def test_the_help_of_the_plan_tells_all_its_options_and_their_defaults():
    text = run("plan", "--help").stdout
    for option in fields(CommandArguments):
        assert option.name == "plan" or f"--{option.name} " in text
        assert not isinstance(option.default, int | float) or option.default is False or f"{option.default:g}" in text


@pytest.mark.parametrize("arguments", [[], ["plan"], ["posterior"]])
def test_a_command_without_arguments_shows_its_help(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage: trl-vade" in result.output


@pytest.mark.parametrize(
    "arguments", [["plans"], ["report"], ["report", "a", "b"], ["posterior", "show", "x", "--sort", "y"]]
)
def test_a_slip_in_the_command_is_a_usage_error(arguments):
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
    """A recipe on a CPU: nothing is estimated, and no model is looked for."""
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


def test_a_plan_that_cannot_work_says_so(recipe):
    result = run("plan", "--config", recipe, "--plan_rows", 3)
    said(result, 2, "3 rows", "per_device_train_batch_size 16", "Add rows")
    assert result.stdout == ""


def test_a_recipe_that_is_not_there_is_said_so(tmp_path):
    said(run("plan", "--config", tmp_path / "none.yaml", "--plan_rows", 3), 2, tmp_path / "none.yaml")


# ------------------------------------------------------------------------------------------------------------ report


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
