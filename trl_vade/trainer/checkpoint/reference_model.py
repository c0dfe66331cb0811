"""The reference model of a run with `sync_ref_model`, which follows the policy and so belongs to a checkpoint.

TRL 1.16 (`SyncRefModelCallback`) keeps it in memory alone: a run that was resumed would be pulled to the base model
again, and nothing would say so.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.logging import get_logger
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from trl import GRPOConfig

from trl_vade.errors import CheckpointIncompleteError, ConfigurationError

from ..main_process import on_main_process

logger = get_logger(__name__)

REFERENCE_FILE = "reference_model/weights.safetensors"
"""In a folder of its own: vLLM 0.31 loads every `*.safetensors` beside a `config.json` as weights of the model. Its
name does not begin with `vade_`, so that a checkpoint without it is not complete (`completeness`)."""


def refuse_reference_sync(args: GRPOConfig, arguments: Mapping[str, Any]) -> None:
    """Refuse `sync_ref_model` without a reference model, which TRL 1.16 does only when it has loaded the policy.

    Args:
        args: of the run.
        arguments: of the trainer.
    """
    reason = None
    if args.beta == 0.0:
        reason = "beta=0.0, under which there is no reference model"
    elif arguments.get("peft_config") is not None:
        reason = "peft_config, under which the reference is the model without its adapter, which never changes"
    if args.sync_ref_model and reason:
        raise ConfigurationError(
            f"sync_ref_model=True with {reason}: nothing could follow the policy. Set sync_ref_model=False, or train "
            "the whole model with beta above 0."
        )


def save_reference_model(trainer: Any, directory: str | os.PathLike[str]) -> None:
    """Write the weights of `trainer`'s reference model into the checkpoint `directory`. All processes take part."""
    if trainer._dist.is_zero3 or trainer._dist.fsdp_version == 1:
        logger.warning_once(
            "sync_ref_model=True under DeepSpeed ZeRO-3 or FSDP1: the reference model's weights are not in the "
            "checkpoints, so this run cannot be resumed. Use FSDP2 or ZeRO-2, or set sync_ref_model=False."
        )
        return
    state = trainer.accelerator.get_state_dict(trainer.ref_model)
    if trainer.accelerator.is_main_process:
        path = Path(directory) / REFERENCE_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        tied = _tied_weights(trainer)
        save_file({name: value.contiguous() for name, value in state.items() if name not in tied}, path)


def load_reference_model(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Fill `trainer`'s reference model from `checkpoint`, bit for bit. The main process reads, all take part.

    Raises:
        CheckpointIncompleteError: the checkpoint holds no reference model, or none of this model's; on all processes.
    """
    state: dict[str, torch.Tensor] = {}
    on_main_process(lambda: state.update(_read(trainer, Path(checkpoint))))
    several = trainer.accelerator.num_processes > 1
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=several)
    set_model_state_dict(trainer.accelerator.unwrap_model(trainer.ref_model), state, options=options)


def _read(trainer: Any, checkpoint: Path) -> dict[str, torch.Tensor]:
    path = checkpoint / REFERENCE_FILE
    way_out = (
        "Resume from another checkpoint, or set sync_ref_model=False, which goes on with the base model as reference."
    )
    if not path.is_file():
        raise CheckpointIncompleteError(
            f"sync_ref_model=True and {checkpoint} has no {REFERENCE_FILE}: it was saved without sync_ref_model, or "
            "by a trainer that does not keep the reference model. The run would be pulled to the base model again, "
            f"not to the policy of its last steps. {way_out}"
        )
    try:
        state = load_file(path)
    except SafetensorError as error:
        raise CheckpointIncompleteError(f"{path} is damaged ({error}). {way_out}") from error
    state |= {name: state[source] for name, source in _tied_weights(trainer).items() if source in state}
    expected = trainer.accelerator.unwrap_model(trainer.ref_model).state_dict().keys()
    if differing := sorted(expected ^ state.keys()):
        raise CheckpointIncompleteError(
            f"{path} is of another model than this run's reference model: {len(differing)} names are in one of them "
            f"alone, the first is {differing[0]}. {way_out}"
        )
    return state


def _tied_weights(trainer: Any) -> dict[str, str]:
    """The names of weights that are another one's, such as the output layer's that are the embedding's."""
    return trainer.accelerator.unwrap_model(trainer.ref_model).all_tied_weights_keys
