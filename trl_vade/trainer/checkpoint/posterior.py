"""The files of VADE in a checkpoint: the posterior with its metadata, and a generation batch in use."""

import os
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState
from trl.trainer.utils import get_config_model_id

from trl_vade.errors import (
    ReplicaDivergenceError,
    SnapshotError,
    SnapshotMismatchError,
    SnapshotNotFoundError,
)
from trl_vade.hub.uploading import hub_id
from trl_vade.samplers.snapshot import Snapshot, load_snapshot, save_snapshot, state_digest

from ..initial_posterior import initial_posterior_facts
from ..loader import generate_every
from ..presets import is_adaptive
from .generation_batch import file_name, load_generation_batch, save_generation_batch
from .mismatch import compare_rows, posterior_identity, resume_joined, resume_stock, start_again

logger = get_logger(__name__)


class PosteriorState(TrainerCallback, ExportableState):
    """Callback that puts the step and the digest of the saved posterior into `trainer_state.json`.

    A resume compares these with the posterior's file, to see that both are from the same save. The arrays stay in that
    file: a million floats in `trainer_state.json` take 59 MB and 4 s. The callback has no reference to the trainer,
    because transformers replaces it under `restore_callback_states_from_checkpoint=True`.
    """

    def __init__(self, file: str = ""):
        self.file = file
        self.step = 0
        self.digest = ""

    def state(self) -> dict[str, Any]:
        """Return the file, step and digest in the form that transformers saves."""
        return {"args": {"file": self.file}, "attributes": {"step": self.step, "digest": self.digest}}


def save_posterior(trainer: Any, directory: str | os.PathLike[str], *, checkpoint: bool) -> None:
    """Write the posterior of `trainer` into `directory`.

    Args:
        trainer: a trainer with a selection.
        directory: a checkpoint folder, or any other folder.
        checkpoint: whether to compare the replicas first, and to write the generation batch in use, and a copy of the
            posterior into the output directory (`hub_strategy="every_save"` uploads no checkpoint folder). All
            processes must then take part.

    Raises:
        ReplicaDivergenceError: the sampler's replicas differ; nothing is written.
        OSError: a file cannot be written.
    """
    sampler, batch_digests = trainer.selection.sampler, None
    if checkpoint:
        _refuse_differing_replicas(trainer)
        batch_digests = _save_generation_batch(trainer, directory)
    if not trainer.args.should_save:
        return
    run = {
        **trainer.selection.feedback.state_dict(),
        "global_step": trainer.state.global_step,
        "micro_step": trainer._step,
        "generation_batch": batch_digests,
        "micro_batch_size": trainer.args.per_device_train_batch_size,
    }
    trainer.selection.feedback.log.sync()
    about = {"base_model": hub_id(get_config_model_id(trainer.model.config)), **initial_posterior_facts(trainer.args)}
    metadata = posterior_identity(trainer) | about | {"run": run}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        digest = save_snapshot(target, sampler, metadata=metadata, sample_key=trainer.selection.sample_keys[0])
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, PosteriorState):
            callback.step, callback.digest = sampler.posterior.step, digest


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior of `checkpoint` into `trainer`, and the generation batch if it was in use.

    If the posterior belongs to another run, `vade_on_mismatch` decides. A new posterior never starts without a
    message. `uniform` also resumes from a checkpoint of `GRPOTrainer`, because its choices need no posterior.

    Raises:
        SnapshotError: the posterior is missing, damaged, of another save than the trainer state, or of another run.
    """
    policy, snapshot = trainer.args.vade_on_mismatch, None
    try:
        snapshot = _load_snapshot(trainer, checkpoint)
        run = _go_on(trainer, checkpoint, snapshot)
    except SnapshotError as error:
        about_another_run = snapshot is not None and isinstance(error, SnapshotMismatchError)
        of_stock = (
            isinstance(error, SnapshotNotFoundError) and "PosteriorState" not in trainer.state.stateful_callbacks
        )
        if of_stock and not is_adaptive(trainer.args):
            resume_stock(trainer, checkpoint)
        elif policy == "reset":
            start_again(trainer, checkpoint, error)
        elif policy == "join" and about_another_run:
            resume_joined(trainer, snapshot, error)
        else:
            join = "'join' keeps the counts of the rows that both have, " if about_another_run else ""
            raise type(error)(
                f"{error} Or set vade_on_mismatch: {join}'reset' starts a new posterior. The weights and the "
                "optimiser come from the checkpoint in any case."
            ) from error
        trainer._step, trainer._buffered_inputs = 0, None  # the next step generates
    else:
        _load_generation_batch(trainer, checkpoint, run)


def _load_snapshot(trainer: Any, checkpoint: str | os.PathLike[str]) -> Snapshot:
    """Return the saved posterior, or raise if it is from another save than the trainer state beside it."""
    snapshot = load_snapshot(checkpoint)
    mark = trainer.state.stateful_callbacks.get("PosteriorState", {}).get("attributes", {})
    step = snapshot.metadata.get("run", {}).get("global_step")
    if mark.get("digest") != snapshot.digest or step != trainer.state.global_step:
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} has digest {snapshot.digest[:12]} and optimiser step {step}, but "
            f"trainer_state.json beside it names digest {str(mark.get('digest'))[:12]} and step "
            f"{trainer.state.global_step}: they are from different saves. Resume from another checkpoint."
        )
    return snapshot


def _go_on(trainer: Any, checkpoint: str | os.PathLike[str], snapshot: Snapshot) -> dict[str, Any]:
    """Load the posterior and return the facts of its run.

    A posterior of another run raises `SnapshotMismatchError` and changes nothing.
    """
    trainer.selection.feedback.adopt_signal(snapshot.metadata)
    ours = posterior_identity(trainer)
    saved = {name: snapshot.metadata.get(name) for name, value in ours.items() if snapshot.metadata.get(name) != value}
    if saved:
        here = {name: ours[name] for name in saved}
        rows = compare_rows(trainer, snapshot) if "dataset_fingerprint" in saved else ""
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} belongs to another run: {saved} there, {here} here{rows}. A posterior is "
            "valid only for the rows, the success signal and the group size of its run. Give this run the same."
        )
    run = snapshot.metadata["run"]
    trainer.selection.sampler.load_state_dict(snapshot.sampler_state)
    trainer.selection.feedback.load_state_dict(run)
    trainer.selection.feedback.resume_log(run)
    trainer._step = run["micro_step"]  # TRL 1.16 starts again at 0
    return run


def _refuse_differing_replicas(trainer: Any) -> None:
    digests = gather_object([state_digest(trainer.selection.sampler)])
    differing = {rank: digest[:12] for rank, digest in enumerate(digests) if digest != digests[0]}
    if differing:
        raise ReplicaDivergenceError(
            f"The sampler's replicas differ at step {trainer.state.global_step}: process 0 has digest "
            f"{digests[0][:12]}, others have {differing}. All processes see the same rewards, so the replicas must be "
            "equal. A likely cause is a reward function or a callback that calls trainer.selection on some processes "
            "only. Nothing was saved. Remove the cause and resume from the previous checkpoint."
        )


def _inside_generation_batch(trainer: Any) -> bool:
    return bool(trainer._step % generate_every(trainer))


def _save_generation_batch(trainer: Any, directory: str | os.PathLike[str]) -> list[str] | None:
    """Write this process's part and return the digests of all parts. None if the next step generates anyway."""
    if not _inside_generation_batch(trainer) or Path(directory) == Path(trainer.args.output_dir):
        return None
    path = Path(directory) / file_name(trainer.accelerator.process_index)
    return list(gather_object([save_generation_batch(path, trainer._buffered_inputs)]))


def _load_generation_batch(trainer: Any, checkpoint: str | os.PathLike[str], run: dict[str, Any]) -> None:
    """Load the batch on all processes or on none. If only some generated, they would wait for the others for ever."""
    accelerator, batch, digests = trainer.accelerator, None, run["generation_batch"]
    if digests is not None and len(digests) == accelerator.num_processes:
        path = Path(checkpoint) / file_name(accelerator.process_index)
        batch = load_generation_batch(path, digests[accelerator.process_index], accelerator.device)
    num_batches, batch_size = trainer.args.steps_per_generation, trainer.args.per_device_train_batch_size
    # Down-sampling leaves smaller micro-batches. Checkpoints before it do not name the size.
    saved_size = run.get("micro_batch_size", len(batch[0]["completion_ids"]) if batch else None)
    fits = batch is not None and (len(batch), saved_size) == (num_batches, batch_size)
    everywhere = all(gather_object([fits]))
    trainer._buffered_inputs = batch if everywhere else None
    if _inside_generation_batch(trainer) and not everywhere:
        logger.warning(
            f"{checkpoint} was saved inside a generation batch, but it does not hold the completions for the "
            f"{accelerator.num_processes} processes and {num_batches} micro-batches of {batch_size} of this run. A "
            "new generation batch is chosen and generated, so this run does not repeat the stopped run."
        )
