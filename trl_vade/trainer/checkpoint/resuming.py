"""Checkpoints with the posterior and a synced reference model, and resumes from them."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model
from safetensors import safe_open
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from trl_vade.errors import CheckpointSaveError, ConfigurationError, VADEError
from trl_vade.files import save_whole

from ..main_process import on_main_process
from .folders import MARKER_FILE, checkpoints, complete_checkpoints, find_checkpoint, look_at, write_marker
from .posterior import resume_posterior, save_posterior
from .reference_model import load_reference_model, save_reference_model

logger = get_logger(__name__)


def resolve_checkpoint(asked: str | os.PathLike[str] | bool | None, output_dir: str | os.PathLike[str]) -> str | None:
    """Return the folder of `find_checkpoint`, and log its notices. All processes must take part."""
    chosen, notices = on_main_process(lambda: find_checkpoint(asked, output_dir))
    for notice in notices:
        logger.warning(notice)
    return chosen


def begin_line(checkpoint: str | None) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the id of a run that goes on from `checkpoint`, and the line of that. All processes must take part."""
    line = uuid.uuid4().hex[:16], look_at(Path(checkpoint)).line if checkpoint else ()
    return on_main_process(lambda: line)


def load_saved_weights(model: Any, directory: str | os.PathLike[str]) -> None:
    """Load the weights in `directory` into `model`, with `from_pretrained`; `VADEError` if some are missing.

    `save_pretrained` writes Qwen2.5-VL under its old names, which the Trainer's resume does not translate: it warns,
    and trains the base model (transformers 4.52 to 5.23, QwenLM/Qwen3-VL#1763). A test fails when this is not needed.
    """
    saved, report = type(model).from_pretrained(directory, dtype=model.dtype, output_loading_info=True)
    if lacking := sorted(report["missing_keys"]):
        raise VADEError(
            f"{directory} lacks {len(lacking)} weights of {type(model).__name__} (first: {lacking[0]}). The run would "
            "train a mixture of saved and new weights. Resume from another checkpoint."
        )
    model.load_state_dict(saved.state_dict())


def index_weights(directory: str | os.PathLike[str]) -> None:
    """Write an index beside a single `model.safetensors`: without one vLLM 0.31 takes the posterior for weights."""
    weights = Path(directory) / SAFE_WEIGHTS_NAME
    if not weights.is_file():
        return
    with safe_open(weights, framework="pt") as file:
        place = dict.fromkeys(sorted(file.keys()), SAFE_WEIGHTS_NAME)
    index = {"metadata": {"total_size": weights.stat().st_size}, "weight_map": place}
    save_whole(Path(directory) / SAFE_WEIGHTS_INDEX_NAME, (json.dumps(index, indent=2) + "\n").encode())


def refuse_other_adapters(model: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Raise `ConfigurationError` for adapters where the checkpoint has a whole model, or the other way round."""
    folder = Path(checkpoint)
    adapters = any(folder.glob("adapter_config.json")) or any(folder.glob("*/adapter_config.json"))
    whole = not adapters and any(folder.glob("*model*.*"))  # some shardings have neither
    if whole if is_peft_model(model) else adapters:
        there, here = ("adapters", "the whole model") if adapters else ("a whole model", "adapters")
        raise ConfigurationError(
            f"{checkpoint} holds {there}, and this run trains {here}. Set peft_config as in the run that saved it, or "
            f"start a new run with model={str(checkpoint)!r} and another output_dir."
        )


@contextmanager
def explaining_failed_saves(folder: Path, *, writes: bool = True) -> Iterator[None]:
    """Delete a checkpoint in `folder` on the process that `writes`, and explain an error of the block's save."""
    try:
        if writes and folder.is_dir():
            (folder / MARKER_FILE).unlink(missing_ok=True)
            shutil.rmtree(folder)
        PartialState().wait_for_everyone()
        yield
    except VADEError:
        raise
    except Exception as error:  # OSError, RuntimeError of torch, errors of safetensors
        whole = [path for path in complete_checkpoints(folder.parent) if path != folder]
        raise CheckpointSaveError(
            f"{folder} could not be written ({type(error).__name__}: {error}), so the run stops. "
            f"{f'{whole[-1]} is whole' if whole else 'There is no earlier checkpoint'}. Free disk space, set "
            "save_total_limit, or check the permissions, and then train(resume_from_checkpoint='auto')."
        ) from error


@contextmanager
def checkpoint_being_saved(trainer: Any, trial: Any) -> Iterator[Path]:
    """Give the folder of the checkpoint that the block saves, mark it as whole, and delete the oldest by step."""
    output_dir, writes, limit = trainer._get_output_dir(trial), trainer.args.should_save, trainer.args.save_total_limit
    folder = Path(output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    with explaining_failed_saves(folder, writes=writes):
        try:
            yield folder
        finally:
            trainer.args.save_total_limit = limit
        PartialState().wait_for_everyone()  # all have written their files
        if writes:
            run, before = trainer._line
            write_marker(folder, [*before, (run, trainer.state.global_step)])
        PartialState().wait_for_everyone()
    if writes and (limit or 0) > 0:
        # By step: `rotate_checkpoints` of transformers 5.24 goes by a clock, which may have stepped back.
        kept = {folder, Path(trainer.state.best_model_checkpoint or folder)}
        old = [path for path in checkpoints(output_dir) if path not in kept]
        for path in old[: max(len(old) - max(limit - len(kept), 0), 0)]:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def model_being_saved(trainer: Any, folder: Path, *, by_trainer: bool) -> Iterator[None]:
    """Save the posterior beside the model that the block saves; in a checkpoint the reference model, too."""
    of_checkpoint = by_trainer and folder != Path(trainer.args.output_dir)
    if trainer.selection is not None:
        save_posterior(trainer, folder, checkpoint=by_trainer)
    if trainer.args.sync_ref_model and of_checkpoint:
        save_reference_model(trainer, folder)
    yield
    if of_checkpoint:  # its settings are written
        trainer.args.save_total_limit = None  # the parent would delete old checkpoints before this one is complete


def load_states(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior and a synced reference model, after optimiser and scheduler. All processes must take part."""
    if trainer.args.sync_ref_model:
        load_reference_model(trainer, checkpoint)
    if trainer.selection is not None:
        resume_posterior(trainer, checkpoint)
    # transformers 5.23 saves the states of callbacks only if the checkpoint had them.
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExportableState):
            trainer.state.stateful_callbacks.setdefault(type(callback).__name__, callback.state())


def say_what_lacks(trainer: Any, checkpoint: Path) -> None:
    """Name the states that transformers would start anew without a word. All processes must take part."""
    args = trainer.args
    states = [f"rng_state_{args.process_index}.pth" if args.world_size > 1 else "rng_state.pth"]
    if args.should_save and not any(checkpoint.glob("global_step*")):  # DeepSpeed has its own
        states += ["scheduler.pt"] if any(checkpoint.glob("*optimizer*")) else ["optimizer.pt", "scheduler.pt"]
    if args.should_save and trainer.use_adaptive_entropy:
        states.append("entropy_ctrl_state.json")
    if lacking := sorted({*gather_object([name for name in states if not (checkpoint / name).exists()])}):
        logger.warning(
            f"{checkpoint} has no {', '.join(lacking)}: it was saved with save_only_model=True, or on another number "
            "of processes. These states start anew, so this run does not repeat the stopped run."
        )
