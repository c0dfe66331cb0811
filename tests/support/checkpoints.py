"""Checkpoint folders as the trainer writes them, with a few bytes for each file."""

import shutil
from pathlib import Path

from transformers import TrainerState

from trl_vade.checkpoints import look_at, write_marker

FILES = (
    "model.safetensors",
    "part/optimizer.bin",
    "vade_posterior.safetensors",
    "vade_generation_batch_00000.safetensors",
)


def write_checkpoint(output_dir, step, *, complete=True, run="a run", ancestors=()):
    """The files, the trainer's state, and the marker last."""
    folder = output_dir / f"checkpoint-{step}"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"content")
    if complete:
        TrainerState(global_step=step).save_to_json(str(folder / "trainer_state.json"))
        write_marker(folder, [*ancestors, (run, step)])
    return folder


def without_later(checkpoint):
    """Move the later checkpoints of its folder to `_aside`, as the refusal of a resume asks; returns its path."""
    for path in sorted(Path(checkpoint).parent.glob("checkpoint-*")):
        if look_at(path).step > look_at(Path(checkpoint)).step:
            shutil.rmtree(path.parent / "_aside" / path.name, ignore_errors=True)
            (path.parent / "_aside").mkdir(exist_ok=True)
            path.rename(path.parent / "_aside" / path.name)
    return str(checkpoint)
