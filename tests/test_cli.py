"""The command `trl-vade`: what it prints, where, and with which exit code. `posterior` is in test_cli_posterior.py."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from test_architecture import SOURCES, imports_of
from test_report import write_run
from typer.testing import CliRunner

import trl_vade
from trl_vade.cli import app, lmms_eval_command, without_tokens
from trl_vade.planning import PlanArguments, print_plan

PACKAGE = Path(trl_vade.__file__).parent


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="trl-vade")


def said(result, exit_code):
    """What went to stderr: one message and no traceback."""
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result.stderr


COMMANDS = ["plan", "report", "evaluate"]
COMMANDS += [f"posterior {name}" for name in ("show", "push", "pull", "diff", "export")]


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"trl-vade {trl_vade.__version__}\n"


def test_the_help_names_every_command_and_how_one_logs_in():
    text = run("--help").stdout
    for command in ("plan", "report", "evaluate", "posterior"):
        assert f"\n  {command} " in text
    assert "hf auth login" in text
    assert "no command takes a" in text


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
    for option in fields(PlanArguments):
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
    assert "Usage: trl-vade" in said(run(*arguments), 2)


def test_the_help_loads_nothing_heavy():
    code = "import sys, trl_vade.cli; print(*[name for name in ('torch', 'trl', 'transformers', 'datasets', 'pyarrow',"
    code += "'numpy', 'huggingface_hub', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_it_runs_as_a_module_too():
    command = [sys.executable, "-m", "trl_vade.cli", "report", "no-such-folder"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: no-such-folder is no folder here")


def test_only_the_command_line_imports_typer():
    using = {name for name in SOURCES if "typer" in {full.split(".")[0] for full in imports_of(name)}}
    assert using == {"cli", "cli_posterior"}


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


def test_a_plan_that_cannot_work_says_so_and_ends_with_1(recipe):
    result = run("plan", "--config", recipe, "--plan_rows", 3)
    text = said(result, 1)
    assert "Error: This recipe cannot run so. The training set has 3 rows" in text
    assert result.stdout == ""


def test_an_argument_that_no_training_has_is_refused_by_name(recipe):
    assert "--learning_rat_e" in said(run("plan", "--config", recipe, "--plan_rows", 22, "--learning_rat_e", 1), 1)


def test_a_recipe_that_is_not_there_is_said_so(tmp_path):
    assert "none.yaml" in said(run("plan", "--config", tmp_path / "none.yaml", "--plan_rows", 3), 1)


# ------------------------------------------------------------------------------------------------------------ report


def test_a_report_prints_the_table_and_leaves_both_files(tmp_path):
    result = run("report", write_run(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for expected in ("thompson", "62.5 %", "vade_report.png", "vade_summary.json"):
        assert expected in result.stdout
    assert json.loads((tmp_path / "out" / "vade_summary.json").read_text())["rollouts"] == 32
    assert (tmp_path / "out" / "vade_report.png").stat().st_size > 1000


def test_a_report_of_no_run_names_what_is_missing(tmp_path):
    assert "vade_posterior.safetensors is not in" in said(run("report", tmp_path), 1)


def test_without_matplotlib_the_report_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "trl_vade.report_picture", raising=False)
    result = run("report", write_run(tmp_path / "out"))
    assert 'pip install "trl-vade[report]"' in said(result, 1)


def test_a_disk_that_refuses_is_a_message_and_no_traceback(tmp_path):
    folder = write_run(tmp_path / "out")
    (folder / "vade_summary.json").mkdir()
    assert "Error: [Errno 21] Is a directory" in said(run("report", folder), 1)


# ---------------------------------------------------------------------------------------------------------- evaluate

TASKS = ["--tasks", "chartqa", "--output_path", "results"]


def test_the_command_of_an_evaluation_has_the_users_options_unchanged():
    options = [*TASKS, "--batch_size", "8", "--gen_kwargs", "temperature=1,max_new_tokens=16", "--log_samples"]
    defaults = ["--model", "qwen2_5_vl", "--model_args", "pretrained=you/model"]
    assert lmms_eval_command("you/model", options) == [sys.executable, "-m", "lmms_eval", *defaults, *options]


@pytest.mark.parametrize(
    ("own", "defaults"),
    [
        (["--model", "qwen2_vl"], ["--model_args", "pretrained=m"]),
        (["--model=qwen2_vl"], ["--model_args", "pretrained=m"]),
        (["--model_args", "pretrained=m,device_map=cpu"], ["--model", "qwen2_5_vl"]),
        (["--model", "vllm", "--model_args=model=m"], []),
    ],
)
def test_a_default_stands_where_the_user_gave_none(own, defaults):
    assert lmms_eval_command("m", [*TASKS, *own])[3:] == [*defaults, *TASKS, *own]


def test_the_command_can_be_printed_without_running_it():
    result = run("evaluate", "--print_command", "a model", *TASKS, "--help")
    assert result.exit_code == 0
    defaults = "--model qwen2_5_vl --model_args 'pretrained=a model'"
    assert result.stdout.endswith(f"-m lmms_eval {defaults} {' '.join(TASKS)} --help\n")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tasks", "chartqa"], "give --output_path"),
        (["--tasks", "chartqa", "--output_path"], "give --output_path"),
        ([*TASKS, "--model_args", "device_map=cpu"], "does not name you/model, so lmms-eval would evaluate another"),
        ([*TASKS, "--model_args", "pretrained=you/other"], "does not name you/model"),
    ],
)
def test_an_evaluation_whose_result_could_mislead_is_a_usage_error(options, says):
    assert says in " ".join(said(run("evaluate", "you/model", *options), 2).split())


def test_without_lmms_eval_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lmms_eval", None)
    assert 'pip install "trl-vade[eval]"' in said(run("evaluate", "m", *TASKS), 1)


def test_no_token_goes_to_lmms_eval_and_what_it_needs_does():
    kept = {"PATH": "/bin", "OPENAI_API_KEY": "EMPTY", "HF_HOME": "/h", "HF_TOKEN_PATH": "/h/token"}
    kept["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
    secret = dict.fromkeys(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "GITHUB_TOKEN"], "hf_secret")
    assert without_tokens({**kept, **secret}) == kept


STAND_IN = '''
"""Stand-in for lmms-eval 0.7.3: it prints what it was given, and leaves results, or none, and exits as it is told."""

import os, pathlib, sys

print(sys.argv[1:], sorted(os.environ.items()))
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(arguments["--output_path"]) / "you__model"
folder.mkdir(parents=True, exist_ok=True)
if name := arguments.get("--leaves"):
    (folder / name).write_text("{}")
sys.exit(int(arguments.get("--exits", 0)))
'''


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A package of the name lmms_eval that can be run; its folder of results has those of an earlier evaluation."""
    package = tmp_path / "site" / "lmms_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    earlier = tmp_path / "results" / "you__model" / "20260101_results.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}")
    return tmp_path


def test_an_evaluation_that_left_results_succeeds(stand_in, capfd):
    result = run("evaluate", "you/model", *TASKS, "--leaves", "20260102_results.json")
    assert result.exit_code == 0, result.output
    log = capfd.readouterr().out
    assert "pretrained=you/model" in log
    assert "hf_secret" not in log


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [
        ([], 1),  # as lmms-eval 0.7.3 ends when a task fails: exit code 0, no results
        (["--exits", 3], 3),
        (["--leaves", "20260102_samples_chartqa.jsonl"], 1),
    ],
)
def test_an_evaluation_without_new_results_fails_whatever_lmms_eval_says(stand_in, options, exit_code):
    result = run("evaluate", "you/model", *TASKS, *options)
    assert "left no new results file (*_results.json) under results" in said(result, exit_code)


def test_the_exit_code_of_lmms_eval_is_kept_where_it_left_results(stand_in):
    options = ["--leaves", "20260102_results.json", "--exits", 4]
    assert run("evaluate", "you/model", *TASKS, *options).exit_code == 4
