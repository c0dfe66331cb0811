"""A checkpoint folder as the trainer writes it, with a few bytes for each file."""

from transformers import TrainerState

from trl_vade.trainer.checkpoint.folders import write_marker

FILES = (
    "model.safetensors",
    "part/optimizer.bin",
    "vade_posterior.safetensors",
    "vade_generation_batch_00000.safetensors",
)


def write_checkpoint(output_dir, step, *, complete=True, save=None, stock=False):
    """The files, the trainer's state, and the marker last; a stock trainer writes no file of VADE."""
    folder = output_dir / f"checkpoint-{step}"
    for name in FILES[: 2 if stock else None]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"content")
    if complete:
        TrainerState(global_step=step).save_to_json(str(folder / "trainer_state.json"))
        if not stock:
            write_marker(folder, run="a run", parent=None, save=step if save is None else save)
    return folder
