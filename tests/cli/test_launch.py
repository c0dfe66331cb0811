"""`trl-vade train --accelerate_config`: what goes to accelerate's launcher, and a launch for real."""

import json
import subprocess
import sys

import pytest

from trl_vade.cli import train
from trl_vade.cli.launching import split
from trl_vade.cli.recipes import ACCELERATE, RECIPES, accelerate_file


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """What accelerate would launch from an empty folder; a list that goes on growing."""
    calls = []
    monkeypatch.chdir(tmp_path)  # the clone may hold the run of the README's first command
    monkeypatch.setattr("trl_vade.cli.launching.launch_command", calls.append)
    return calls


def test_options_of_the_launcher_and_of_the_run_are_told_apart_and_one_that_both_know_is_the_runs():
    ours = ["--seed", "2", "--beta=0", "--reward_funcs", "a", "b", "--config", "recipe.yaml", "--max-steps", "2"]
    ours += ["--gradient_accumulation_steps", "4"]
    theirs = ["--num_machines", "2", "--machine-rank=1", "--main_process_ip", "10.0.0.2"]
    assert split([*ours[:2], *theirs[:2], *ours[2:], *theirs[2:]]) == (ours, theirs)


def test_a_configuration_of_the_users_own_comes_before_a_name_of_the_package(tmp_path, monkeypatch):
    assert accelerate_file("fsdp2") == ACCELERATE / "fsdp2.yaml"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fsdp2").write_text("num_processes: 2")
    assert accelerate_file("fsdp2").samefile(tmp_path / "fsdp2")


def test_the_run_is_launched_as_a_module_with_the_packages_configuration(launched):
    train.run(["--recipe", "quickstart", "--accelerate_config", "fsdp2", "--num_processes", "8", "--seed", "3"])
    [call] = launched
    assert (call.config_file, call.num_processes, call.module) == (str(ACCELERATE / "fsdp2.yaml"), 8, True)
    assert call.training_script == "trl_vade"
    assert call.training_script_args == ["train", "--config", str(RECIPES / "quickstart.yaml"), "--seed", "3"]


FLAGS = ["--max_steps", "1", "--per_device_train_batch_size", "32", "--eval_strategy", "no", "--disable_tqdm", "true"]
NOTING_THREADS = """
import atexit, glob
from pathlib import Path

@atexit.register
def note_threads():
    Path("threads").write_text("".join(Path(name).read_text() for name in glob.glob("/proc/self/task/*/comm")))

from trl_vade.cli.main import main
main()
"""


def run(folder, *command):
    """Run Python in a folder, with the run's flags."""
    command = [sys.executable, *command, *FLAGS, "--output_dir", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)


@pytest.mark.slow
def test_two_processes_train_where_the_configuration_says_so(tmp_path):
    (tmp_path / "two.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    command = ["-m", "trl_vade", "train", "--accelerate_config", "two.yaml"]
    done = run(tmp_path, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "out" / "vade_summary.json").read_text())["rollouts"] == 2 * 32
    again = run(tmp_path, *command)  # the folder holds a run now: the processes say so, and the exit code is theirs
    assert again.returncode == 2
    assert "resume_from_checkpoint='auto'" in again.stderr


@pytest.mark.slow
def test_a_launcher_around_the_command_needs_no_configuration(tmp_path):
    (tmp_path / "train.py").write_text(NOTING_THREADS)
    done = run(tmp_path, "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py", "train")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "out" / "vade_summary.json").read_text())["rollouts"] == 2 * 32
    # One of gloo's that still works while the interpreter ends aborts the process: in 2 of 34 runs on a busy machine.
    assert "gloo" not in (tmp_path / "threads").read_text()
