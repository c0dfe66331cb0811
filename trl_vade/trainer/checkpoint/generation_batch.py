"""A file for a generation batch in use, so that a checkpoint between its optimiser steps resumes bit for bit.

TRL 1.16 keeps the completions of a generation batch in memory (`GRPOTrainer._buffered_inputs`) and in no checkpoint. A
run resumed there would generate other completions.

Each process writes `vade_generation_batch_<process>.safetensors`. The tensors of micro-batch i are named `<i>/<name>`.
The header's metadata holds the other values (lists of whole numbers, None) and the digests of the pictures as JSON.
The pictures themselves are most of a batch (1.5 GiB for 8 rows x 8 completions with 1 megapixel, a copy for each
completion). They follow from the rows and the processor, so a resume makes them again from the rows.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import gather_object, send_to_device
from safetensors import safe_open
from safetensors.torch import save_file
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import split_pixel_values_by_grid

from trl_vade.data.loading import with_image_lists

from ..batch_rows import Batch
from ..loader import generate_every

logger = get_logger(__name__)

ROW = "vade_row"
"""Entry of a batch: (B,) the number of each row in the training set."""

PICTURES = ("pixel_values", "pixel_attention_mask")
"""The large entries that `split_pixel_values_by_grid` of TRL splits by row, where a model has them in that form."""

Pictures = dict[int, Batch]
"""The entries `PICTURES` of a row by its number, empty for a row without pictures."""


def layout(trainer: Any) -> dict[str, int]:
    """Return the sizes that a generation batch of this run is made for."""
    names = ("per_device_train_batch_size", "steps_per_generation", "num_iterations", "gradient_accumulation_steps")
    return {"processes": PartialState().num_processes, **{name: getattr(trainer.args, name) for name in names}}


def save_batch_in_use(trainer: Any, directory: str | os.PathLike[str]) -> str | None:
    """Write this process's part of the batch, unless the next step generates. Return why a file cannot hold it."""
    if not trainer._step % generate_every(trainer) or Path(directory) == Path(trainer.args.output_dir):
        return None
    path = Path(directory) / file_name(trainer.accelerator.process_index)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A transform may be random, and an environment may bring its own pictures.
    by_rows = not trainer.selection.loader.decoder.has_transform and trainer.environment_factories is None
    return _first(save_generation_batch(path, trainer._buffered_inputs, by_rows=by_rows))


def resume_batch_in_use(trainer: Any, checkpoint: str | os.PathLike[str], run: dict[str, Any]) -> None:
    """Load the batch on all processes, or say why a new one is generated. `run` is of the checkpoint's posterior."""
    here, there, batch, reason = layout(trainer), run["layout"], None, run["generation_batch"]
    trainer._buffered_inputs, trainer._step = None, run["micro_step"] if here == there else 0  # TRL 1.16: always 0
    if not run["micro_step"] % (there["steps_per_generation"] * there["num_iterations"]):
        return
    if here != there:
        changed = [name for name in here if here[name] != there[name]]
        reason = ", ".join(f"{name} was {there[name]} and is {here[name]}" for name in changed)
    elif reason is None:
        path = Path(checkpoint) / file_name(trainer.accelerator.process_index)
        try:
            batch = load_generation_batch(path, lambda rows: load_pictures(trainer, rows), trainer.accelerator.device)
        except Exception as error:  # of the file, a row or the processor; the other processes wait below
            reason = f"{type(error).__name__}: {error}"
    reason = _first(reason)
    if reason is None:
        trainer._buffered_inputs = batch
        return
    trainer._step = 0  # else a part of the new batch would not be trained on
    logger.warning(
        f"{checkpoint} was saved inside a generation batch, which cannot go on ({reason}). A new generation batch is "
        "chosen and generated, so this run does not repeat the stopped run."
    )


def _first(reason: str | None) -> str | None:
    """Return the first reason that a process has. If only some generated, they would wait for the others for ever."""
    return next(filter(None, gather_object([reason])), None)


def file_name(process_index: int) -> str:
    """Return the name of a process's file."""
    return f"vade_generation_batch_{process_index:05d}.safetensors"


def save_generation_batch(path: str | os.PathLike[str], micro_batches: list[Batch], *, by_rows: bool) -> str | None:
    """Write the micro-batches to `path` and return None, or return the reason why the file cannot hold them.

    `by_rows` says whether the pictures of a row can be loaded again. Else they are written.
    """
    micro_batches, digests = set_pictures_aside(micro_batches) if by_rows else (micro_batches, {})
    tensors, others = {}, []
    for i, micro_batch in enumerate(micro_batches):
        others.append({})
        for name, value in micro_batch.items():
            if isinstance(value, torch.Tensor):
                value = value.detach().cpu().contiguous()
                # safetensors refuses tensors that share memory. Those of pictures do not, and are large.
                tensors[f"{i}/{name}"] = value if name in PICTURES else value.clone()
            elif _is_plain(value):
                others[i][name] = value
            else:
                return f"the file cannot hold {name} of TRL's generation batch, a {type(value).__name__}"
    save_file(tensors, path, metadata={"others": json.dumps({"micro_batches": others, "pictures": digests})})
    return None


def load_generation_batch(
    path: str | os.PathLike[str], pictures_of: Callable[[list[int]], Pictures], device: torch.device
) -> list[Batch]:
    """Return what `save_generation_batch` wrote to `path`, with the pictures that `pictures_of` loads for the rows.

    Raises an error of any kind if the file is missing or another program wrote it, and `ValueError` if a row has
    changed.
    """
    with safe_open(path, framework="pt") as file:
        others = json.loads(file.metadata()["others"])
        batches, digests = others["micro_batches"], {int(row): digest for row, digest in others["pictures"].items()}
        if type(batches) is not list or not all(_is_plain(value) for each in batches for value in each.values()):
            raise ValueError(f"{path} holds values other than a list of tensors, whole numbers and None")
        for key in file.keys():  # noqa: SIM118
            number, _, name = key.partition("/")
            batches[int(number)][name] = file.get_tensor(key)
    if digests:
        batches = with_pictures(batches, pictures_of(sorted(digests)), digests)
    moved: list[Batch] = send_to_device(batches, device)
    return moved


def _is_plain(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(type(number) is int for number in value))


def set_pictures_aside(micro_batches: list[Batch]) -> tuple[list[Batch], dict[int, str]]:
    """Return the micro-batches without their pictures, and the SHA-256 of the pictures of each row.

    All stays as it is, without a digest, if rows are unknown or two completions of a row have different pictures, such
    as those of tools.
    """
    first, split = Pictures(), [_by_completion(each) for each in micro_batches]
    for micro_batch, parts in zip(micro_batches, split, strict=True):
        for place, row in enumerate(micro_batch.get(ROW, [])):
            pictures = {name: values[place] for name, values in parts.items() if len(values[place])}
            known = first.setdefault(int(row), pictures)
            if known.keys() != pictures.keys() or not all(known[name].equal(pictures[name]) for name in known):
                return micro_batches, {}
    digests = {row: _digest(pictures) for row, pictures in first.items() if pictures}
    pairs = zip(micro_batches, split, strict=True)
    return [each | {name: each[name][:0] for name in parts if digests} for each, parts in pairs], digests


def with_pictures(micro_batches: list[Batch], pictures: Pictures, digests: dict[int, str]) -> list[Batch]:
    """Return the micro-batches of `set_pictures_aside` with the pictures of their rows.

    Raises:
        ValueError: the pictures of a row do not have their digest.
    """
    # An entry that TRL does not split is in the file.
    types = {name: each[name].dtype for each in micro_batches for name in PICTURES if not len(each.get(name, " "))}
    for row, digest in digests.items():
        pictures[row] = {name: value.to(types[name]) for name, value in pictures[row].items() if name in types}
        if _digest(pictures[row]) != digest:
            raise ValueError(f"the pictures of row {row} are others now, or the processor is another")
    filled = []
    for each in micro_batches:
        rows = [row for row in each[ROW].tolist() if row in digests]
        parts = {name: [each[name], *(pictures[row][name] for row in rows)] for name in types if name in each}
        filled.append(each | {name: torch.cat(values) for name, values in parts.items()})
    return filled


def load_pictures(trainer: Any, rows: list[int]) -> Pictures:
    """Return the pictures of rows of the training set, read and processed as TRL 1.16 does.

    `_tokenize_prompts` processes them with the prompt, as the pass over a whole batch does.
    """
    pictures = {}
    for number, row in zip(rows, with_image_lists(trainer.selection.loader.decoder.load(rows)), strict=True):
        images = row["images"] if "images" in row else [row["image"]] if "image" in row else []
        prompt = prepare_multimodal_messages(row["prompt"], images=images) if images else row["prompt"]
        _, _, fields = trainer._tokenize_prompts([prompt])
        pictures[number] = {name: torch.as_tensor(fields[name]) for name in PICTURES if name in fields}
    return pictures


def _by_completion(micro_batch: Batch) -> dict[str, list[torch.Tensor]]:
    split = split_pixel_values_by_grid(micro_batch)
    return {name: split[name] for name in PICTURES if isinstance(split.get(name), list)}


def _digest(pictures: Batch) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(pictures.items()):
        plain = value.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
