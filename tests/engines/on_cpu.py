"""vLLM's CPU build as the engine of a trainer: what has to be replaced for that, and a command that runs under it.

usage: python -m tests.engines.on_cpu PROGRAM [ARGUMENTS ...]

The replaced parts are named here, each with its reason; all else is the real vLLM and the real TRL.
"""

import functools
import os
import runpy
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
DIFFERENCE = "sampling/sampling_logp_difference/mean"  # as TRL logs it with vLLM
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(HERE / "site"), str(REPOSITORY)]),
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; else the engine claims 0.92 of the memory
    "TORCHDYNAMO_DISABLE": "1",  # vLLM compiles a function of three lines, which takes ten seconds
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare() -> None:
    """Make TRL's colocated engine, its weight sync and torch's loader work on a CPU."""
    import torch
    import trl.generation.vllm_generation as trl_vllm
    from trl.generation.vllm_client import VLLMClient

    from tests.engines.worker import keep_linear_weights

    keep_linear_weights()
    trl_vllm.LLM = functools.partial(engine, trl_vllm.LLM)
    # The sync to a server is NCCL, which needs CUDA: here weights go by a file that the server loads.
    VLLMClient.init_communicator = lambda self, device=0: None
    VLLMClient.update_named_params = sync_by_file
    # torch 2.13 over gloo names the CPU "cpu:0" in what it saves, and cannot load that.
    torch.serialization.register_package(0, lambda s: None, lambda s, where: s if where == "cpu:0" else None)


def engine(make, enable_sleep_mode=False, **options):
    """The engine that TRL makes. A CPU's does not sleep; what TRL does around its sleep is done all the same."""
    # TRL has no argument for either: float32 for exact comparisons, and no compilation, which takes most of a start.
    llm = make(dtype="float32", enforce_eager=True, **options)
    if enable_sleep_mode:
        llm.sleep = llm.wake_up = lambda **which: None
    return llm


def sync_by_file(client, metadata, named_params) -> None:
    """Stand-in for `VLLMClient.update_named_params`: the server's worker loads a file (`worker.FileSync`)."""
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.safetensors"
        save_file({name: weight.detach().clone().contiguous() for name, weight in named_params}, path)
        call = {"method": "load_file", "kwargs": {"path": path}}
        answer = client.session.post(f"{client.base_url}/collective_rpc", json=call)
    if answer.status_code != 200:
        raise RuntimeError(f"load_file: {answer.status_code} {answer.text}")


if __name__ == "__main__":
    prepare()
    program, sys.argv = sys.argv[1], sys.argv[1:]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
