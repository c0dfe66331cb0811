"""Body of `test_sharded.py`, run by `accelerate launch` with the packaged fsdp2.yaml: two processes over gloo.

usage: sharded.py MODEL_DIRECTORY OUTPUT_DIRECTORY [CHECKPOINT | mixed]

Models are loaded as by transformers before 5.18, which vLLM 0.31 asks for.

Every process writes what it saw to `rank-<n>.json` in the output directory. With CHECKPOINT (a step), the run goes on
from that checkpoint of the output directory. With `mixed`, one row in four has no image.
"""

import json
import os
import sys

import datasets
import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from PIL import Image
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.modeling_utils import is_fsdp_enabled, is_local_dist_rank_0
from trl.generation.vllm_generation import VLLMGeneration

from tests.support.runs import logged
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.trainer.generation.corrections import reshard_before_sync

model, output_dir, *checkpoint = sys.argv[1:]
mixed = checkpoint == ["mixed"]
shares = []


def has_even_length(completions, id, **kwargs):
    shares.append(id)
    alive = trainer.state.global_step < 2 or PartialState().is_main_process  # else the group before comes again
    return [float(alive and len(completion[0]["content"]) % 2 == 0) for completion in completions]


def rows_with_images():
    """A process without any image would not gather the vision tower that the others wait for."""
    images = [Image.fromarray(np.full((56, 56, 3), 20 * i, dtype=np.uint8)) for i in range(12)]
    rows = [
        {
            "prompt": [{"role": "user", "content": f"What is {i % 10}?"}],
            "images": [image] if i % 4 or not mixed else [],
            "id": f"row-{i}",
        }
        for i, image in enumerate(images)
    ]
    return Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


initialize_missing_keys = PreTrainedModel._initialize_missing_keys


def with_zeros_for_what_process_0_loads(self, *arguments, **named):
    """As transformers 5.17 does in `_move_missing_keys_from_meta_to_device`."""
    if is_fsdp_enabled() and not is_local_dist_rank_0():
        for parameter in self.parameters():
            parameter.data = torch.zeros_like(parameter)
    initialize_missing_keys(self, *arguments, **named)


PreTrainedModel._initialize_missing_keys = with_zeros_for_what_process_0_loads
args = VADEGRPOConfig(
    output_dir=output_dir,
    per_device_train_batch_size=4,
    num_generations=4,
    max_completion_length=4,
    generation_kwargs={"min_new_tokens": 4},  # the update has as many padded tokens with older rows
    max_steps=4,
    num_iterations=2,  # so that checkpoint-3 lies inside a generation batch
    learning_rate=1e-2,
    beta=0.5,
    vade_down_sampling="live",
    vade_replay=1,
    sync_ref_model=True,
    ref_model_sync_steps=3,
    use_cpu=True,
    logging_steps=1,
    save_strategy="steps",
    save_steps=3,
    report_to="none",
    disable_tqdm=True,
)
# accelerate 1.15 makes FSDP of the device types that it lists (state.py, `AcceleratorState.__init__`). The CPU is not
# among them, and full replicas would be trained without a word. Everything that follows is what GPUs run, over gloo.
PartialState().distributed_type = DistributedType.MULTI_GPU
trainer = VADEGRPOTrainer(model, has_even_length, args, rows_with_images())
trainer.train(resume_from_checkpoint=f"{output_dir}/checkpoint-{checkpoint[0]}" if checkpoint and not mixed else None)

trained_on = [*shares]
trainer.evaluate(rows_with_images().select(range(4)))  # forward passes without a backward pass
# TRL's part that hands the weights to vLLM, which is not here.
engine = object.__new__(VLLMGeneration)
engine.model, engine.accelerator, engine._dist = trainer.model, trainer.accelerator, trainer._dist
try:
    stock_sync = len(list(engine._iter_named_params()))
except AttributeError as error:
    stock_sync = str(error)
reshard_before_sync(engine)
synced = {name: weight.double().sum().item() for name, weight in engine._iter_named_params()}
posterior = trainer.selection.sampler.posterior
parameters = list(trainer.model.parameters())
with open(f"{output_dir}/rank-{PartialState().process_index}.json", "w") as file:
    json.dump(
        {
            "distributed_type": str(trainer.accelerator.distributed_type.value),
            "units": sorted({type(m).__name__ for m in trainer.model.modules() if isinstance(m, FSDPModule)}),
            "is_sharded": all(isinstance(p, DTensor) for p in parameters),
            "held": sum(p.to_local().numel() for p in parameters),
            "in_all": sum(p.numel() for p in parameters),
            "stock_sync": stock_sync,
            "synced": synced,
            "shares": trained_on,
            "alpha": posterior.alpha.tolist(),
            "visits": posterior.visits.tolist(),
            "rollouts": trainer.selection.feedback.rollouts,
            "staleness": logged(trainer, "vade/staleness"),
            "replayed": logged(trainer, "vade/replayed_rows"),
            "loss": logged(trainer, "loss"),
            "kl": logged(trainer, "kl"),
        },
        file,
    )
torch.distributed.destroy_process_group()
# Everything is written. torch 2.15 over gloo aborts now and then while the interpreter is torn down: a worker thread
# that still holds the last collective wants the GIL (pytorch/pytorch#179291, closed without a merge). So: no teardown.
os._exit(0)
