"""The reference model of a run with `sync_ref_model`, saved in checkpoints because it follows the policy.

TRL 1.16 keeps it in memory only. A resumed run would be pulled to the base model again, without a message.
"""

import os
from pathlib import Path
from typing import Any

import torch
from accelerate.logging import get_logger
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from trl_vade.errors import CheckpointIncompleteError

from ..main_process import on_main_process

logger = get_logger(__name__)

REFERENCE_FILE = "reference_model/weights.safetensors"  # not beside the policy's: vLLM might load both


def save_reference_model(trainer: Any, directory: str | os.PathLike[str]) -> None:
    """Write the reference model's weights into the checkpoint `directory`. All processes must take part."""
    if trainer._dist.is_zero3 or trainer._dist.fsdp_version == 1:
        logger.warning_once(
            "sync_ref_model=True with DeepSpeed ZeRO-3 or FSDP1: the reference model's weights are not saved in the "
            "checkpoints, so this run cannot be resumed. Use FSDP2 or ZeRO-2, or set sync_ref_model=False."
        )
        return
    state = trainer.accelerator.get_state_dict(trainer.ref_model)
    if trainer.accelerator.is_main_process:
        path = Path(directory) / REFERENCE_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        tied = _tied_weights(trainer)
        kept = {name: value.contiguous() for name, value in state.items() if name not in tied}
        save_file(kept, path)


def load_reference_model(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the reference model's weights from `checkpoint`, bit for bit. All processes must take part.

    Without a reference model all raise `CheckpointIncompleteError`.
    """
    state: dict[str, torch.Tensor] = {}
    on_main_process(lambda: state.update(_read(trainer, Path(checkpoint) / REFERENCE_FILE)))
    several = trainer.accelerator.num_processes > 1
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=several)
    set_model_state_dict(trainer.accelerator.unwrap_model(trainer.ref_model), state, options=options)


def _read(trainer: Any, path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise CheckpointIncompleteError(
            f"sync_ref_model=True, but {path} is missing: the checkpoint was saved without sync_ref_model. The run "
            "would be pulled to the base model. Resume from another checkpoint, or set sync_ref_model=False."
        )
    state = load_file(path)
    return state | {name: state[source] for name, source in _tied_weights(trainer).items()}


def _tied_weights(trainer: Any) -> dict[str, str]:
    """Return the names of tied weights with their sources, such as the output layer with the embedding."""
    return trainer.accelerator.unwrap_model(trainer.ref_model).all_tied_weights_keys
