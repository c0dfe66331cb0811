"""A file for a generation batch in use, so that a checkpoint between its optimiser steps resumes bit for bit.

TRL 1.16 keeps the completions of a generation batch in memory (`GRPOTrainer._buffered_inputs`) and in no checkpoint. A
run resumed there would generate other completions.

Each process writes `vade_generation_batch_<process>.safetensors`. The tensors of micro-batch i are named `<i>/<name>`.
The header's metadata holds the other values (lists of whole numbers, None) as JSON.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from trl_vade.errors import SnapshotCorruptError
from trl_vade.files import save_whole

MicroBatches = list[dict[str, Any]]


def file_name(process_index: int) -> str:
    """Return the name of a process's file."""
    return f"vade_generation_batch_{process_index:05d}.safetensors"


def save_generation_batch(path: str | os.PathLike[str], micro_batches: MicroBatches) -> str:
    """Write the micro-batches to `path` atomically, and return the SHA-256 of the file.

    Raises:
        OSError: the file cannot be written.
        TypeError: a value is not a tensor, None, or a list of whole numbers.
    """
    tensors, others = {}, []
    for i, micro_batch in enumerate(micro_batches):
        others.append({})
        for name, value in micro_batch.items():
            if isinstance(value, torch.Tensor):
                # safetensors refuses tensors that share memory, such as slices of one batch.
                tensors[f"{i}/{name}"] = value.detach().cpu().contiguous().clone()
            elif _is_plain(value):
                others[i][name] = value
            else:
                raise TypeError(
                    f"{name} of TRL's buffered generation batch is a {type(value).__name__}, which this release of "
                    "trl_vade cannot save. Save between generation batches (save_steps), or report this."
                )
    content = save(tensors, metadata={"others": json.dumps(others)})
    save_whole(Path(path), content)
    return hashlib.sha256(content).hexdigest()


def load_generation_batch(path: str | os.PathLike[str], digest: str, device: torch.device) -> MicroBatches | None:
    """Return the micro-batches that `save_generation_batch` wrote to `path`, or None if there is no file.

    `digest` is the SHA-256 of the file, from the checkpoint. A file with another one is a `SnapshotCorruptError`.
    """
    if not Path(path).exists():
        return None
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise SnapshotCorruptError(
            f"{path} has SHA-256 {hashlib.sha256(content).hexdigest()[:12]}..., but its checkpoint names "
            f"{digest[:12]}...: the file was truncated, changed or copied from another checkpoint. Resume from "
            "another checkpoint, or delete this file; a new generation batch is then generated."
        )
    try:
        micro_batches = _parse(content)
    except _NOT_OURS as error:
        raise SnapshotCorruptError(
            f"{path} is not a generation batch of trl_vade ({type(error).__name__}: {error}), although its checkpoint "
            "names its digest: another program wrote both. Resume from another checkpoint, or delete this file; a new "
            "generation batch is then generated."
        ) from error
    return [
        {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in micro_batch.items()}
        for micro_batch in micro_batches
    ]


# Errors of json, safetensors and torch for a file with other content. RecursionError is a RuntimeError.
_NOT_OURS = (SafetensorError, ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)


def _parse(content: bytes) -> MicroBatches:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    micro_batches = json.loads(header["__metadata__"]["others"])
    if not isinstance(micro_batches, list) or not all(isinstance(each, dict) for each in micro_batches):
        raise ValueError("its metadata is not a list of micro-batches")
    if not all(_is_plain(value) for each in micro_batches for value in each.values()):
        raise ValueError("its metadata holds values other than whole numbers and None")
    numbered = {str(i): micro_batch for i, micro_batch in enumerate(micro_batches)}
    for key, tensor in load(content).items():
        i, slash, name = key.partition("/")
        if not slash or name in numbered[i]:
            raise ValueError(f"the tensor {key!r} has no place in it")
        numbered[i][name] = tensor
    return micro_batches


def _is_plain(value: Any) -> bool:
    """Return whether the value belongs into the metadata."""
    return value is None or (isinstance(value, list) and all(type(number) is int for number in value))
