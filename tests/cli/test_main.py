"""The command `trl-vade`: its help, its exit codes, and reports; other commands have tests of their own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trl_vade
from tests.support.commands import run, said
from tests.support.finished_run import write_run
from tests.support.refusals import says
from trl_vade import errors
from trl_vade.cli.parsing import Parser
from trl_vade.cli.recipes import ACCELERATE

ROOT = Path(trl_vade.__file__).parents[1]
COMMANDS = ["train", "plan", "report", "evaluate", "posterior show", "posterior push"]


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"trl-vade {trl_vade.__version__}\n"


def test_every_command_has_examples_of_itself_two_spellings_of_help_and_takes_no_token():
    for command in ["", "posterior", *COMMANDS]:
        result = run(*command.split(), "--help")
        assert result.exit_code == 0, command
        assert result.stdout == run(*command.split(), "-h").stdout, command
        assert max(map(len, result.stdout.splitlines())) <= 80, command
        assert command not in COMMANDS or f"    trl-vade {command} " in result.stdout.split("Example")[1], command
        assert not re.search(r"--\w*token\b", result.stdout), command
    text = run("--help").stdout
    assert all(f"\n  {command} " in text for command in ("train", "plan", "report", "evaluate", "posterior"))
    assert "hf auth login" in text


def test_the_help_of_a_training_names_options_that_there_are_and_with_all_it_is_every_one():
    options = {action.dest for action in Parser()._actions}
    named = {*re.findall(r"--(\w+)", run("train", "--help").stdout)}
    assert named - {"help", "help_all"} <= options
    text = run("train", "--help-all").stdout
    assert [name for name in options if f"--{name} " not in text] == []
    text = " ".join(text.split())
    words = ("never holds more rows", "{posterior,difficulty}", "(default: balanced)", "{grpo,gspo}_{vade,vanilla}")
    assert [each for each in words if each not in text] == []
    assert [path.stem for path in ACCELERATE.glob("*.yaml") if path.stem not in text] == []


def test_what_was_given_ends_with_2_and_what_failed_with_1(monkeypatch):
    given = ("Configuration", "SnapshotNotFound", "CheckpointIncomplete", "SnapshotMismatch")
    failed = [PermissionError, *(getattr(errors, f"{name}Error") for name in ("SnapshotCorrupt", "Hub", "Judge"))]
    for error in (FileNotFoundError, *(getattr(errors, f"{name}Error") for name in given), *failed):

        def report(*arguments, error=error, **named):
            raise error("what is wrong")

        monkeypatch.setattr("trl_vade.selection.report.writing.write_report", report)
        assert said(run("report", "run"), 1 if error in failed else 2) == "Error: what is wrong\n"


def test_a_command_without_arguments_shows_its_help_and_a_slip_is_a_usage_error_with_the_nearest_name(tmp_path):
    for arguments in ([], ["plan"], ["posterior"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Usage: trl-vade" in result.output
    for arguments, named in {
        "plans": "'plan'",
        "report": "OUTPUT_DIR",
        "report a b": "b",
        "posterior show x --sort y": "--sort",
        "evaluate m --output_pat o": "--output_path",
        f"evaluate testbed --output-path {tmp_path} --tasks nosuch": "testbed",  # with hyphens it is the same option
    }.items():
        assert said(run(*arguments.split()), 2, named).count("Error: ") == 1


def test_the_help_loads_nothing_heavy():
    code = "import sys, trl_vade.cli.main; print(*[name for name in ('torch', 'trl', 'transformers', 'datasets',"
    code += "'pyarrow', 'numpy', 'huggingface_hub', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


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


def test_it_runs_as_a_script_too():
    command = [sys.executable, "scripts/evaluate.py", "testbed", "--output_path", "none", "--tasks", "nosuch"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, "nosuch")
