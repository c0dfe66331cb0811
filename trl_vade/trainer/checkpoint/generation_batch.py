"""A file for a generation batch in use, so that a checkpoint between its optimiser steps resumes bit for bit.

TRL 1.16 keeps the completions of a generation batch in memory (`GRPOTrainer._buffered_inputs`) and in no checkpoint. A
run resumed there would generate other completions. In place of pixels (`images.store`) the file holds their rows and
digests, and a resume makes them again. Pixels of a transform, which may be random, and of replayed rows are in it.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import gather_object, send_to_device
from safetensors import safe_open
from safetensors.torch import save_file

from trl_vade.data.loading import with_image_lists

from ..batch import prompts_of
from ..images.store import PixelStore
from ..loader import generate_every

logger = get_logger(__name__)

SIZES = ("per_device_train_batch_size", "steps_per_generation", "num_iterations", "gradient_accumulation_steps")


def file_name(process_index: int) -> str:
    """Return the name of the file of one process."""
    return f"vade_generation_batch_{process_index:05d}.safetensors"


def layout(trainer: Any) -> dict[str, int]:
    """Return what a generation batch of this run is made for: its sizes, and the log-probabilities that it holds."""
    return {name: getattr(trainer.args, name) for name in SIZES} | {
        "processes": PartialState().num_processes,
        "images_once": int(trainer._images.on),
        "reference": int(trainer.beta != 0.0),
        "corrected": int(trainer.use_vllm and trainer.vllm_importance_sampling_correction),
    }


def save_batch_in_use(trainer: Any, directory: str | os.PathLike[str]) -> None:
    """Write this process's part of the batch, unless the next step generates and replays none of it.

    The file has the micro-batches, the rows of their pixels or else these, and digests of the pixels. Tensors of part
    i are named `<i>/<name>`. Other values are JSON in the header; if one cannot be, no file is written.
    """
    if Path(directory) == Path(trainer.args.output_dir) or not trainer._buffered_inputs:
        return
    if not trainer._step % generate_every(trainer) and not trainer._batch.thinning.replay.batches:
        return
    path, store = Path(directory) / file_name(trainer.accelerator.process_index), trainer._images.store
    kept = slice(None) if store.of_rows is None else slice(-store.older or len(store), None)
    pixels = {name: value[kept] for name, value in store.tensors.items() if len(value[kept])}
    tensors, others = {}, []
    for i, part in enumerate((*trainer._buffered_inputs, pixels)):
        others.append({name: value for name, value in part.items() if not torch.is_tensor(value)})
        for name in part.keys() - others[i].keys():  # cloned, as the file takes no memory that tensors share
            tensors[f"{i}/{name}"] = part[name].detach().cpu().contiguous().clone()
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(TypeError):
        about = json.dumps([others, store.of_rows, _digests(store.tensors)])
        save_file(tensors, path, metadata={"others": about})


def resume_batch_in_use(trainer: Any, checkpoint: str | os.PathLike[str], run: dict[str, Any]) -> None:
    """Load the batch on all processes, or say what is lost without it. `run` is of the checkpoint's posterior."""
    here, there, batch, reason = layout(trainer), run["layout"], None, None
    trainer._buffered_inputs, trainer._step = None, run["micro_step"] if here == there else 0  # TRL 1.16: always 0
    in_use = run["micro_step"] % (there["steps_per_generation"] * there["num_iterations"])
    if not (in_use or trainer._batch.thinning.replay.batches):
        return
    try:
        if changed := {name: (there[name], size) for name, size in here.items() if size != there[name]}:
            raise ValueError(f"it is made for other settings, before and now: {changed}")
        path = Path(checkpoint) / file_name(trainer.accelerator.process_index)
        with safe_open(path, framework="pt") as file:
            (*batch, pixels), rows, digests = json.loads(file.metadata()["others"])
            for key in file.keys():  # noqa: SIM118
                place, _, name = key.partition("/")
                [*batch, pixels][int(place)][name] = file.get_tensor(key)
        store = PixelStore(of_rows=rows)
        if rows is not None and digests:  # read and process them as for their generation batch
            prompts = prompts_of(with_image_lists(trainer.selection.loader.decoder.load(rows)))
            with trainer._images.preparing(True):
                trainer._tokenize_prompts(prompts)
            store = replace(trainer._images.store, of_rows=rows)
        store.append(pixels)
        if _digests(store.tensors) != digests:
            raise ValueError(f"the pictures of the rows {rows} are others now, or the processor is another")
        batch, trainer._images.store = send_to_device(batch, trainer.accelerator.device), store
    except Exception as error:  # of the file, a row or the processor; the other processes wait below
        reason = f"{type(error).__name__}: {error}"
    # If only some generated, they would wait for the others for ever.
    if (reason := next(filter(None, gather_object([reason])), None)) is None:
        trainer._buffered_inputs = batch
        return
    if in_use:
        trainer._step = 0  # else a part of the new batch would not be trained on
        lost = f"was saved inside a generation batch, which cannot go on ({reason}). A new generation batch is chosen"
    else:
        lost = f"has no groups that can be trained on again ({reason}). Those of the next batches are"
    logger.warning(f"{checkpoint} {lost}, so this run does not repeat the stopped run.")


def _digests(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    found = {}
    for name, value in tensors.items():
        plain = value.detach().cpu().contiguous()
        digest = hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)} ".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
        found[name] = digest.hexdigest()
    return found
