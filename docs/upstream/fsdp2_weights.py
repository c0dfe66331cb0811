"""TRL 1.16.0, torch 2.15: FSDP2: the weights cannot be sent after a forward pass without a backward pass.

After a forward pass, torch leaves the weights of the root module whole for the backward pass. An evaluation has
none. An engine that sleeps gets its weights before each batch.

Expected:
    4 weights

Printed:
    AttributeError: 'Parameter' object has no attribute 'full_tensor'
"""

import os
from types import SimpleNamespace

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from trl.generation.vllm_generation import VLLMGeneration

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}
torch.distributed.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
with torch.no_grad():
    model(torch.ones(1, 4))  # an evaluation, which has no backward pass
engine = SimpleNamespace(
    accelerator=SimpleNamespace(device="cpu"), _fix_param_name_to_vllm=lambda name, **kwargs: name
)
try:
    print(len(list(VLLMGeneration._iter_fsdp2_params(engine, model))), "weights")
except AttributeError as error:
    print(f"AttributeError: {error}")
torch.distributed.destroy_process_group()
