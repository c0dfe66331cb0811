"""scripts/slurm: the job script, run for real against stand-ins for the commands of a cluster."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "slurm" / "train_server.sbatch"

# Each notes how it was called, one argument a line. `srun` runs what it is given, as task 0 of the step.
STAND_INS = {
    "scontrol": "printf 'node-%s\\n' $(seq 1 ${NODES:-2})",
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; SLURM_PROCID=0 exec "$@"',
    "curl": 'test -e "$CALLS/up"',
    "vllm": 'echo "$VLLM_SERVER_DEV_MODE" > "$CALLS/mode"; eval "$SERVER_DOES"',
    "accelerate": 'eval "$TRAINING_DOES"',
}
SERVES, SHORTLY = (f'touch "$CALLS/up"; exec sleep {seconds}' for seconds in (30, 0.5))


@pytest.fixture
def submit(tmp_path):
    """Run the script with the stand-ins on PATH; returns the finished process and the calls by command."""
    calls, commands = tmp_path / "calls", tmp_path / "bin"
    calls.mkdir()
    commands.mkdir()
    for name, does in STAND_INS.items():
        note = f'printf "%s\\n" "$@" > "$CALLS/{name}-$$"\n'
        path = commands / name
        path.write_text(f"#!/usr/bin/env bash\n{note}{does}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def run(*arguments, **environment):
        own = {"PATH": f"{commands}:{os.environ['PATH']}", "CALLS": str(calls), "SLURM_JOB_NODELIST": "node-[1-2]"}
        own |= {"SECONDS_BETWEEN_TRIES": "0.05", "SERVER_DOES": SERVES, "TRAINING_DOES": "true"}
        command = ["bash", str(SCRIPT), *arguments]
        done = subprocess.run(command, env=own | environment, cwd=ROOT, capture_output=True, text=True, timeout=20)
        return done, lambda name: [each.read_text().split("\n")[:-1] for each in calls.glob(f"{name}-*")]

    run.calls = calls
    return run


def values(call, flags):
    return {flag: call[call.index(f"--{flag}") + 1] for flag in flags}


def test_one_node_serves_and_the_other_trains_on_the_recipes_own_steps(submit):
    done, calls = submit("--seed", "1")
    assert done.returncode == 0, done.stderr
    [serve] = calls("vllm")
    assert serve[:2] == ["serve", "Qwen/Qwen2.5-VL-7B-Instruct"]
    expected = {"max-model-len": "10240", "tensor-parallel-size": "4", "dtype": "bfloat16", "max-logprobs": "-1"}
    expected |= {"weight-transfer-config": '{"backend":"nccl"}', "logprobs-mode": "processed_logprobs"}
    assert values(serve, expected) == expected
    assert "--enable-scale-out" in serve
    assert (submit.calls / "mode").read_text() == "1\n"
    [launch] = calls("accelerate")
    assert launch[:3] == ["launch", "--machine_rank", "0"]
    expected = {"num_machines": "1", "num_processes": "4", "main_process_ip": "node-2", "vllm_server_host": "node-1"}
    expected |= {"gradient_accumulation_steps": "64", "steps_per_generation": "256"}
    expected |= {"vllm_mode": "server", "resume_from_checkpoint": "auto"}
    assert values(launch, expected) == expected
    assert launch[-2:] == ["--seed", "1"]
    steps = [dict(each.partition("=")[::2] for each in step if each.startswith("--no")) for step in calls("srun")]
    assert sorted((step["--nodes"], step["--nodelist"]) for step in steps) == [("1", "node-1"), ("1", "node-2")]
    assert all("--kill-on-bad-exit=1" in step for step in calls("srun"))


def test_more_nodes_keep_the_recipes_update_and_generation_batch(submit):
    done, calls = submit(NODES="5")
    assert done.returncode == 0, done.stderr
    [launch] = calls("accelerate")
    expected = {"num_processes": "16", "num_machines": "4"}
    expected |= {"gradient_accumulation_steps": "16", "steps_per_generation": "64"}
    assert values(launch, expected) == expected
    assert any("--nodelist=node-2,node-3,node-4,node-5" in step for step in calls("srun"))


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"NODES": "1"}, "2 nodes or more"),
        ({"NODES": "4"}, "12 processes do not divide"),
        ({"RECIPE": "trl_vade/recipes/quickstart.yaml"}, "sets no vllm_max_model_length"),
        ({"SERVER_DOES": "exit 3"}, "vLLM ended before it was up"),
        ({"SERVER_DOES": "exec sleep 30", "VLLM_MINUTES_TO_START": "0"}, "not up after 0 minutes"),
        ({"SERVER_DOES": SHORTLY, "TRAINING_DOES": "exec sleep 30"}, "vLLM ended while the training was running"),
    ],
)
def test_what_cannot_work_ends_the_job_and_says_why(submit, environment, says):
    done, _ = submit(**environment)
    assert done.returncode == 1
    assert says in done.stderr


def test_a_failed_training_ends_the_server_and_gives_the_job_its_exit_code(submit):
    """A server left behind would hold the pipes of its output for 30 seconds, past the limit of `submit`."""
    done, _ = submit(TRAINING_DOES="exit 7")
    assert done.returncode == 7
