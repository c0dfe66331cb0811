"""What several processes must agree on: the result of the main process, and the weights of a model."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from .errors import ConfigurationError


def on_main_process(compute: Callable[[], Any]) -> Any:
    """Run `compute` on the main process, and return its result or raise its error, picklable, on all processes.

    Without this, an error on the main process would leave the others waiting in a collective.
    """
    state = PartialState()
    if state.num_processes == 1:
        return compute()
    result, error = None, None
    if state.is_main_process:
        try:
            result = compute()
        except Exception as raised:
            error = raised
    result, error = broadcast_object_list([result, error])
    if error is not None:
        raise error
    return result


def refuse_differing_weights(models: Iterable[tuple[str, Any]]) -> None:
    """Raise `ConfigurationError` on all processes if one of these named `models` of transformers differs between them.

    TRL broadcasts the weights of the policy, but not those of the reference model and of reward models. With
    accelerate's `fsdp_cpu_ram_efficient_loading: true`, transformers before 5.18 (which vLLM 0.31 requires) leaves
    zeros on every process but the first of a machine, and TRL 1.16 shards these zeros without a message (KL at step 1:
    4.17). Replicas must have the same sum. Shards differ anyway; a shard of zeros is recognised.
    """
    if PartialState().num_processes == 1:
        return
    for name, model in models:
        if not isinstance(getattr(model, "module", model), PreTrainedModel):  # TRL may have wrapped it
            continue
        found = dict(enumerate(gather_object([weights_here(model)])))
        if len(set(found.values()) - {None}) > 1:
            raise ConfigurationError(
                f"{name} differs between processes; the weights are {found} and must be the same. With FSDP and "
                "transformers before 5.18, zeros come from accelerate's setting fsdp_cpu_ram_efficient_loading: true. "
                "Set it to false (it saves no memory), or install transformers 5.18. Otherwise the machines have "
                "different copies of the model: set its revision, or delete the older copy."
            )


def weights_here(model: torch.nn.Module) -> str | None:
    """Describe this process's weights of `model`: zeros, a shard, or a replica with its sum. None: empty."""
    parameters = list(model.parameters())
    parts = [getattr(parameter, "ds_tensor", parameter) for parameter in parameters]  # DeepSpeed ZeRO-3
    parts = [(part.to_local() if isinstance(part, DTensor) else part).detach() for part in parts]
    if not any(part.numel() for part in parts):
        return None
    # A sum of whole numbers is the same in any order and on any GPU.
    words = [_as_whole_numbers(part.reshape(-1)) for part in parts]
    total = sum(int(each.sum(dtype=torch.int64)) for each in words)
    if total == 0 and not any(each.any() for each in words):
        return "all zero"
    is_sharded = any(isinstance(p, DTensor) or hasattr(p, "ds_id") for p in parameters)
    is_sharded |= any(isinstance(module, FullyShardedDataParallel) for module in model.modules())
    return "a shard" if is_sharded else f"of checksum {total}"


def _as_whole_numbers(flat: torch.Tensor) -> torch.Tensor:
    """Return a view by four bytes, or by one where they do not divide: to sum bytes takes four times as long."""
    fits = all(number * flat.element_size() % 4 == 0 for number in (flat.numel(), flat.storage_offset()))
    return flat.view(torch.int32 if fits else torch.uint8)
