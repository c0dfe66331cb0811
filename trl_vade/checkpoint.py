"""What a checkpoint holds of VADE: the posterior, what it is about, and a generation batch that is still in use."""

import os
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object
from trl.trainer.utils import get_config_model_id

from .callbacks import PosteriorState
from .errors import ReplicaDivergenceError, SnapshotMismatchError
from .generation_batch import file_name, load_generation_batch, save_generation_batch
from .snapshot import Snapshot, load_snapshot, save_snapshot, state_digest

logger = get_logger(__name__)


def save_posterior(trainer: Any, directory: str | os.PathLike[str], *, checkpoint: bool) -> None:
    """Write the posterior of `trainer` into `directory`.

    With `checkpoint`, which only the Trainer's own saves may set since all processes must take part: compare the
    replicas first, write the generation batch in use beside it, and a copy of the posterior into the output directory
    (`hub_strategy="every_save"` uploads that and no checkpoint folder).

    Raises:
        ReplicaDivergenceError: the sampler's replicas differ; nothing is written.
        OSError: the disk refused.
    """
    sampler, batch_digests = trainer.selection.sampler, None
    if checkpoint:
        _refuse_differing_replicas(trainer)
        batch_digests = _save_generation_batch(trainer, directory)
    if not trainer.args.should_save:
        return
    run = {
        **trainer.selection.state_dict(),
        "global_step": trainer.state.global_step,
        "micro_step": trainer._step,
        "generation_batch": batch_digests,
    }
    metadata = identity(trainer) | {"base_model": get_config_model_id(trainer.model.config), "run": run}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        digest = save_snapshot(target, sampler, metadata=metadata)
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, PosteriorState):
            callback.step, callback.digest = sampler.posterior.step, digest


def load_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Let `trainer` go on from the posterior and, where it was in use, from the generation batch of `checkpoint`.

    Raises:
        SnapshotError: it is missing, damaged, of another save than the trainer's state, or about something else; a
            run never starts again from the prior without a word.
    """
    snapshot = load_snapshot(checkpoint)
    _refuse_another_save(trainer, checkpoint, snapshot)
    for name, ours in identity(trainer).items():
        if snapshot.metadata.get(name) != ours:
            raise SnapshotMismatchError(
                f"{name} is {snapshot.metadata.get(name)!r} in {checkpoint} and {ours!r} in this run. A posterior "
                "holds for the rows, the success signal and the group size that it was learned with. Give this run "
                "the same ones, or start a new run in another output_dir."
            )
    run = snapshot.metadata["run"]
    trainer.selection.sampler.load_state_dict(snapshot.sampler_state)
    trainer.selection.load_state_dict(run)
    trainer._step = run["micro_step"]  # the parent starts again at 0 (TRL 1.16)
    _load_generation_batch(trainer, checkpoint, run["generation_batch"])


def identity(trainer: Any) -> dict[str, Any]:
    """What a posterior is about; a run with another one cannot go on from it."""
    return {
        "dataset_fingerprint": trainer.selection.fingerprint,
        "success_reward": trainer.reward_func_names[trainer._success_column],
        "success_threshold": trainer.args.vade_success_threshold,
        "num_generations": trainer.num_generations,
    }


def _refuse_differing_replicas(trainer: Any) -> None:
    digests = gather_object([state_digest(trainer.selection.sampler)])
    differing = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if differing:
        raise ReplicaDivergenceError(
            f"The sampler's replicas on processes {differing} differ from that on process 0 at step "
            f"{trainer.state.global_step}. They see the same gathered rewards and must be equal; a reward function or "
            "a callback that calls trainer.selection on some processes only would do this. Nothing was saved."
        )


def _refuse_another_save(trainer: Any, checkpoint: str | os.PathLike[str], snapshot: Snapshot) -> None:
    mark = trainer.state.stateful_callbacks.get("PosteriorState", {}).get("attributes", {})
    if mark.get("digest") != snapshot.digest:
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} has digest {snapshot.digest[:12]}, its trainer_state.json asks for "
            f"{str(mark.get('digest'))[:12]}: they are from different saves. Resume from another checkpoint."
        )


def _inside_generation_batch(trainer: Any) -> bool:
    return bool(trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations))


def _save_generation_batch(trainer: Any, directory: str | os.PathLike[str]) -> list[str] | None:
    """Write this process's part; return the digests of all parts, or None where the next step generates anyway."""
    if not _inside_generation_batch(trainer) or Path(directory) == Path(trainer.args.output_dir):
        return None
    path = Path(directory) / file_name(trainer.accelerator.process_index)
    return list(gather_object([save_generation_batch(path, trainer._buffered_inputs)]))


def _load_generation_batch(trainer: Any, checkpoint: str | os.PathLike[str], digests: list[str] | None) -> None:
    """Take the batch over on all processes, or on none: some that generate would wait for those that do not."""
    accelerator, batch = trainer.accelerator, None
    if digests is not None and len(digests) == accelerator.num_processes:
        path = Path(checkpoint) / file_name(accelerator.process_index)
        batch = load_generation_batch(path, digests[accelerator.process_index], accelerator.device)
    everywhere = all(gather_object([batch is not None]))
    trainer._buffered_inputs = batch if everywhere else None
    if _inside_generation_batch(trainer) and not everywhere:
        logger.warning(
            f"{checkpoint} was saved inside a generation batch, and its completions are not there for the "
            f"{accelerator.num_processes} processes of this run: a new generation batch is chosen and generated in "
            "its place, so this run will not repeat the one that was stopped."
        )
