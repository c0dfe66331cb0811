"""Checkpoints with the posterior and a synced reference model, and resumes from them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import gather_object
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from trl_vade.checkpoints import BEGUN, PREFIX, TRAINER_STATE_FILE, find_checkpoint, remove, rotate, write_marker
from trl_vade.errors import (
    CheckpointIncompleteError,
    CheckpointSaveError,
    ConfigurationError,
    ReplicaDivergenceError,
    SnapshotMismatchError,
    VADEError,
    abbreviated,
)
from trl_vade.files import save_whole
from trl_vade.processes import on_main_process
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest

from ..run_facts import posterior_identity, run_facts
from .generation_batch import layout, resume_batch_in_use, save_batch_in_use

logger = get_logger(__name__)

REFERENCE_FILE = "reference_model/weights.safetensors"


def resolve_checkpoint(asked: Any, output_dir: str | os.PathLike[str], model: Any = None) -> str | None:
    """Return the folder of `find_checkpoint`, fit for `model`, and log its notices. All processes must take part."""
    chosen, notices = on_main_process(lambda: find_checkpoint(asked, output_dir))
    for notice in notices:
        logger.warning(notice)
    if chosen is None:
        return None
    checkpoint = Path(chosen)
    try:
        TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_FILE))
    except Exception as error:
        way = "Put a copy of it back, or set resume_from_checkpoint to an earlier checkpoint."
        raise CheckpointIncompleteError(f"{checkpoint / TRAINER_STATE_FILE} was damaged ({error!r}). {way}") from error
    adapters = (checkpoint / "adapter_config.json").is_file()
    if adapters != hasattr(model, "peft_config") and (adapters or (checkpoint / "config.json").is_file()):
        kinds = ("a whole model", "adapters")
        raise ConfigurationError(
            f"{checkpoint} holds {kinds[adapters]}, and this run trains {kinds[not adapters]}. Set peft_config "
            "(--use_peft) as its run did, or start a new run from its weights in another output_dir."
        )
    return chosen


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


def say_what_lacks(trainer: Any, checkpoint: Path) -> None:
    """Name the states that transformers would start anew without a word."""
    lacking = [] if len([*checkpoint.glob("rng_state*.pth")]) == trainer.args.world_size else ["random numbers"]
    if not any(checkpoint.glob("*optimizer*")) and not any(checkpoint.glob("global_step*")):  # the latter of DeepSpeed
        lacking += ["optimizer", "scheduler"]
    if lacking:
        logger.warning(
            f"{checkpoint} lacks the states of {', '.join(lacking)}: it was saved with save_only_model=True, or on "
            "another number of processes. They start anew, so this run does not repeat the stopped run."
        )


def load_states(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior and a synced reference model, after optimiser and scheduler. All processes must take part."""
    if trainer.args.sync_ref_model:
        _load_reference_model(trainer, Path(checkpoint))
    if trainer.selection is not None:
        resume_posterior(trainer, checkpoint)
    # transformers 5.23 saves the states of callbacks only if the checkpoint had them.
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExportableState):
            trainer.state.stateful_callbacks.setdefault(type(callback).__name__, callback.state())


def _load_reference_model(trainer: Any, checkpoint: Path) -> None:
    path, state = checkpoint / REFERENCE_FILE, {}

    def read() -> None:
        if not path.is_file():
            raise CheckpointIncompleteError(
                f"sync_ref_model=True, but {path} is missing: the checkpoint was saved without sync_ref_model. The "
                "run would be pulled to the base model. Resume from another checkpoint, or set sync_ref_model=False."
            )
        saved = load_file(path)
        state.update(saved | {name: saved[source] for name, source in model.all_tied_weights_keys.items()})

    model = trainer.accelerator.unwrap_model(trainer.ref_model)
    on_main_process(read)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=trainer.accelerator.num_processes > 1)
    set_model_state_dict(model, state, options=options)


@contextmanager
def checkpoint_being_saved(trainer: Any, trial: Any) -> Iterator[Path]:
    """Give the folder of the checkpoint that the block saves, or raise `CheckpointSaveError`; delete the oldest."""
    args, step, wait = trainer.args, trainer.state.global_step, PartialState().wait_for_everyone
    output_dir, limit = trainer._get_output_dir(trial), args.save_total_limit
    folder = Path(output_dir) / f"{PREFIX}{step}"
    try:
        if args.should_save:  # torch would write into its files, which a push may have links to
            remove(folder)
        wait()
        yield folder
        wait()  # all have written their files
        if args.should_save:
            run, before = trainer._line
            write_marker(folder, [*before, (run, step)])
        wait()
    except VADEError:
        raise
    except Exception as error:  # OSError, RuntimeError of torch, errors of safetensors
        raise CheckpointSaveError(
            f"{folder} could not be written ({type(error).__name__}: {error}), so the run stops. Free disk space, set "
            "save_total_limit, or check the permissions. Then train(resume_from_checkpoint='auto') goes on."
        ) from error
    finally:
        args.save_total_limit = limit
    if args.should_save and (limit or 0) > 0:
        # `rotate_checkpoints` of transformers 5.24 goes by a clock, which may have stepped back.
        rotate(folder, {Path(trainer.state.best_model_checkpoint or folder)}, limit)


@contextmanager
def model_being_saved(trainer: Any, folder: Path, *, by_trainer: bool) -> Iterator[None]:
    """Save the posterior beside the model that the block saves; in a checkpoint the reference model, too."""
    of_checkpoint = by_trainer and folder != Path(trainer.args.output_dir)
    if trainer.selection is not None:
        save_posterior(trainer, folder, checkpoint=by_trainer)
    elif of_checkpoint and trainer.args.should_save:
        save_whole(folder / BEGUN, b"")
    if trainer.args.sync_ref_model and of_checkpoint:
        _save_reference_model(trainer, folder / REFERENCE_FILE)
    yield
    if of_checkpoint:  # its settings are written
        trainer.args.save_total_limit = None  # the parent would delete old checkpoints before this one is complete


def _save_reference_model(trainer: Any, path: Path) -> None:
    """Write the reference model, which follows the policy. TRL 1.16 saves none, and does not say so."""
    if trainer._dist.is_zero3 or trainer._dist.fsdp_version == 1:
        logger.warning_once(
            "sync_ref_model=True with DeepSpeed ZeRO-3 or FSDP1: the reference model's weights are not saved in the "
            "checkpoints, so this run cannot be resumed. Use FSDP2 or ZeRO-2, or set sync_ref_model=False."
        )
        return
    state = trainer.accelerator.get_state_dict(trainer.ref_model)
    if trainer.accelerator.is_main_process:
        path.parent.mkdir(parents=True, exist_ok=True)
        tied = trainer.accelerator.unwrap_model(trainer.ref_model).all_tied_weights_keys
        save_file({name: value.contiguous() for name, value in state.items() if name not in tied}, path)


def index_weights(directory: str | os.PathLike[str]) -> None:
    """Write an index beside a single `model.safetensors`: without one vLLM 0.31 takes the posterior for weights."""
    weights = Path(directory) / SAFE_WEIGHTS_NAME
    if not weights.is_file():
        return
    with safe_open(weights, framework="pt") as file:
        place = dict.fromkeys(sorted(file.keys()), SAFE_WEIGHTS_NAME)
    index = {"metadata": {"total_size": weights.stat().st_size}, "weight_map": place}
    save_whole(Path(directory) / SAFE_WEIGHTS_INDEX_NAME, (json.dumps(index, indent=2) + "\n").encode())


def save_posterior(trainer: Any, directory: str | os.PathLike[str], *, checkpoint: bool) -> None:
    """Write the posterior of `trainer`, which has a selection, into `directory`.

    For a `checkpoint` all processes must take part. Replicas that differ are a `ReplicaDivergenceError`, before a
    file is written. It writes the generation batch in use, too, and a copy of the posterior into the output directory,
    as `hub_strategy="every_save"` uploads no such folder.
    """
    selection = trainer.selection
    if checkpoint:
        digests = [digest[:12] for digest in gather_object([state_digest(selection.sampler)])]
        if len({*digests}) > 1:
            raise ReplicaDivergenceError(
                f"The sampler's replicas differ at step {trainer.state.global_step}; their digests by process are "
                f"{digests}. A likely cause is a reward function or a callback that calls trainer.selection on some "
                "processes only, or a sampler of your own with random numbers that no seed fixes. Nothing was saved. "
                "Remove the cause and resume from the previous checkpoint."
            )
        save_batch_in_use(trainer, directory)
    if not trainer.args.should_save:
        return
    now = {"global_step": trainer.state.global_step, "micro_step": trainer._step, "layout": layout(trainer)}
    selection.feedback.log.sync()
    metadata = run_facts(trainer) | {"run": selection.feedback.state_dict() | now}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        save_snapshot(target, selection.sampler, metadata=metadata, sample_key=selection.sample_keys)


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior of `checkpoint`, and the generation batch in use, or raise `SnapshotError`."""
    snapshot, sampler, feedback = load_snapshot(checkpoint), trainer.selection.sampler, trainer.selection.feedback
    feedback.adopt_signal(snapshot.metadata)
    run = snapshot.metadata.get("run", {})
    rows = {"rows": snapshot.sampler_state["posterior"]["num_samples"]}
    theirs = snapshot.metadata | rows | {"global_step": run.get("global_step")}
    ours = posterior_identity(trainer) | {"rows": len(trainer.selection.dataset)}
    ours["global_step"] = trainer.state.global_step
    if other := {name: (theirs.get(name), value) for name, value in ours.items() if theirs.get(name) != value}:
        if "rows" in other:
            other.pop("dataset_fingerprint", None)  # two hashes say less than two numbers
        differences = ", ".join(f"{name} was {before!r} and is {now!r}" for name, (before, now) in other.items())
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} belongs to another run or save: {differences}. Give this run the same, or "
            f"start a new run of the model in {checkpoint} with another output_dir. There vade_posterior_init="
            f"{str(checkpoint)!r} and vade_warm_start_discount=1 keep the counts of the shared rows."
        )
    sampler.load_state_dict(snapshot.sampler_state)
    feedback.load_state_dict(run)
    feedback.resume_log(run)
    if rules := sampler.changed_rules(snapshot.sampler_state):
        logger.warning(
            f"Rules of the sampler differ from those of {checkpoint} (before, now): {abbreviated(rules)}. Its "
            "evidence goes on."
        )
    resume_batch_in_use(trainer, checkpoint, run)
