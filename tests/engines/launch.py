"""Runs of `tests.engines.run` in processes of their own, and what they noted."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.engines.on_cpu import DIFFERENCE, ENVIRONMENT, REPOSITORY
from tests.support.checkpoints import without_later

FSDP2 = REPOSITORY / "trl_vade" / "recipes" / "accelerate" / "fsdp2.yaml"


def start(
    folder: Path,
    *options,
    processes: int = 1,
    sharded: bool = False,
    placeholders_excluded: bool = True,
    **settings,
) -> list[SimpleNamespace]:
    """Train in `folder`; return what each process noted.

    Args:
        folder: of the run.
        options: of the command `tests.engines.run`.
        processes: over gloo.
        sharded: whether they share the weights (FSDP2, the project's own configuration, in float32).
        placeholders_excluded: by the trainer's head, too, and not by the engine alone (not where `sharded`).
        settings: of the trainer.
    """
    launcher, run = [sys.executable], ["-m", "tests.engines.on_cpu", "tests.engines.run"]
    first = options[options.index("--resume") + 1] if "--resume" in options else 0
    if first:
        without_later(folder / f"checkpoint-{first}")
    if sharded:
        launcher += ["-m", "accelerate.commands.launch", "--config_file", str(FSDP2), "--mixed_precision", "no"]
        launcher += ["--num_processes", str(processes), "--main_process_port", "0"]  # 0: it looks for a free one
    elif processes > 1:
        with socket.create_server(("127.0.0.1", 0)) as free:  # `--master_port 0` waits for ever
            port = free.getsockname()[1]
        launcher += ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        launcher += ["--master_addr", "127.0.0.1", "--master_port", str(port)]
    # A tensor-parallel engine's shared memory has one name for all runs on a CPU (vLLM 0.31), and outlives its run.
    for leftover in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        leftover.unlink()
    run += [str(folder), *map(str, options)]
    run += ["--placeholders-excluded"] if placeholders_excluded and not sharded else []
    done = subprocess.run(
        [*launcher, *run, "--settings", json.dumps(settings)],
        cwd=REPOSITORY,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{done.args}\n{done.stderr[-20000:]}")
    noted = [json.loads((folder / f"measure-{rank}-{first}.json").read_text()) for rank in range(processes)]
    return [SimpleNamespace(**each) for each in noted]


def differences(steps: list[dict]) -> list[float]:
    """Of the log-probabilities of engine and trainer, mean over the tokens of each step."""
    return [step[DIFFERENCE] for step in steps]
