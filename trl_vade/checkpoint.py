"""What a checkpoint holds of VADE: the posterior, what it is about, and a generation batch that is still in use."""

import os
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object
from trl.trainer.utils import get_config_model_id

from .callbacks import PosteriorState
from .errors import ReplicaDivergenceError, SnapshotCorruptError, SnapshotError, SnapshotMismatchError
from .generation_batch import MicroBatches, file_name, load_generation_batch, save_generation_batch
from .join import find_rows, joined_state
from .posterior_table import hub_id
from .snapshot import Snapshot, load_snapshot, save_snapshot, state_digest
from .warm_start import beginning

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
    trainer.selection.log.sync()
    about = {"base_model": hub_id(get_config_model_id(trainer.model.config)), **beginning(trainer.args)}
    metadata = identity(trainer) | about | {"run": run}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        digest = save_snapshot(target, sampler, metadata=metadata, sample_key=trainer.selection.sample_keys[0])
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, PosteriorState):
            callback.step, callback.digest = sampler.posterior.step, digest


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Let `trainer` go on from the posterior and, where it was in use, from the generation batch of `checkpoint`.

    Where they are about another run, `vade_on_mismatch` decides; a run never starts again from the prior silently.

    Raises:
        SnapshotError: the posterior is missing, damaged, of another save than the trainer's state, or about something
            else.
    """
    policy, snapshot = trainer.args.vade_on_mismatch, None
    try:
        snapshot = _load_snapshot(trainer, checkpoint)
        digests = _go_on(trainer, checkpoint, snapshot)
    except SnapshotError as error:
        about_another_run = snapshot is not None and isinstance(error, SnapshotMismatchError)
        if policy == "reset":
            _start_again(trainer, checkpoint, error)
        elif policy == "join" and about_another_run:
            _join(trainer, snapshot, error)
        else:
            join = "'join' goes on with the counts of the rows that both have, " if about_another_run else ""
            raise type(error)(
                f"{error} Or set vade_on_mismatch: {join}'reset' starts the posterior again; the weights and the "
                "optimiser come from the checkpoint in any case."
            ) from error
    else:
        _load_generation_batch(trainer, checkpoint, digests)


def identity(trainer: Any) -> dict[str, Any]:
    """What a posterior is about; a run with another one cannot go on from it."""
    return {
        "dataset_fingerprint": trainer.selection.fingerprint,
        "success_reward": trainer.reward_func_names[trainer._success_column],
        "success_threshold": trainer.args.vade_success_threshold,
        "num_generations": trainer.num_generations,
    }


def _load_snapshot(trainer: Any, checkpoint: str | os.PathLike[str]) -> Snapshot:
    """Read the posterior, and refuse one that is of another save than the trainer's state beside it."""
    snapshot = load_snapshot(checkpoint)
    mark = trainer.state.stateful_callbacks.get("PosteriorState", {}).get("attributes", {})
    step = snapshot.metadata.get("run", {}).get("global_step")
    if mark.get("digest") != snapshot.digest or step != trainer.state.global_step:
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} has digest {snapshot.digest[:12]} and is of optimiser step {step}; "
            f"trainer_state.json beside it asks for {str(mark.get('digest'))[:12]} and step "
            f"{trainer.state.global_step}: they are from different saves. Resume from another checkpoint."
        )
    return snapshot


def _go_on(trainer: Any, checkpoint: str | os.PathLike[str], snapshot: Snapshot) -> list[str] | None:
    """The usual resume, which changes nothing where it raises; returns the digests of the generation batch in use."""
    ours = identity(trainer)
    saved = {name: snapshot.metadata.get(name) for name, value in ours.items() if snapshot.metadata.get(name) != value}
    if saved:
        here = {name: ours[name] for name in saved}
        rows = _compare_rows(trainer, snapshot) if "dataset_fingerprint" in saved else ""
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} is about another run: {saved} there, {here} here{rows}. A posterior holds "
            "for the rows, the success signal and the group size that it was learned with. Give this run the same."
        )
    _refuse_a_damaged_log(trainer)
    run = snapshot.metadata["run"]
    trainer.selection.sampler.load_state_dict(snapshot.sampler_state)
    trainer.selection.load_state_dict(run)
    trainer._step = run["micro_step"]  # the parent starts again at 0 (TRL 1.16)
    return run["generation_batch"]


def _refuse_a_damaged_log(trainer: Any) -> None:
    """On all processes alike, though the main process alone has the log: some that go on would wait for the others."""
    damage = None
    if trainer.accelerator.is_main_process:
        try:
            trainer.selection.log.read()
        except SnapshotCorruptError as error:
            damage = str(error)
    found = next(filter(None, gather_object([damage])), None)
    if found:
        raise SnapshotCorruptError(found)


def _compare_rows(trainer: Any, snapshot: Snapshot) -> str:
    keys, num_saved = trainer.selection.sample_keys[0], snapshot.sampler_state["posterior"]["num_samples"]
    rows = f" ({num_saved} training rows there, {len(keys)} here"
    if snapshot.sample_key is None:
        return rows + ")"
    found, _ = find_rows(snapshot.sample_key, keys)
    return f"{rows}; of the {len(found)} rows scored there, {found.sum()} are here)"


def _join(trainer: Any, snapshot: Snapshot, reason: SnapshotError) -> None:
    """Go on with the counts of the rows that are in both data sets."""
    ours = identity(trainer)
    if any(snapshot.metadata.get(name) != ours[name] for name in ("success_reward", "success_threshold")):
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot mend this: pass rates under another success signal are no "
            "evidence for this one. Set vade_on_mismatch='reset' to start the posterior again."
        ) from reason
    selection = trainer._make_selection()
    keys = selection.sample_keys[0]
    try:
        state, num_found = joined_state(snapshot, selection.sampler.state_dict(), keys)
    except SnapshotMismatchError as error:
        raise SnapshotMismatchError(
            f"{reason} vade_on_mismatch='join' cannot mend this: {error} Set vade_on_mismatch='reset' to start the "
            "posterior again."
        ) from error
    selection.sampler.load_state_dict(state)
    _begin_anew(trainer, selection)
    run = snapshot.metadata["run"]
    if run["outage"].get("streak"):
        logger.warning("The checkpoint was saved during a reward outage: the joined counts are those of the outage.")
    selection.load_state_dict(run | {"outage": {}})
    logger.warning(
        f"vade_on_mismatch='join': {reason} Going on with the counts of {num_found} of the {len(snapshot.sample_key)} "
        f"rows that were scored there; the other {len(keys) - num_found} of the {len(keys)} rows here start from the "
        "prior. The next generation batch is chosen anew, so this run does not repeat the one that was stopped."
    )


def _start_again(trainer: Any, checkpoint: str | os.PathLike[str], reason: SnapshotError) -> None:
    """Go on with the weights alone."""
    _begin_anew(trainer, trainer._make_selection())
    logger.warning(
        f"vade_on_mismatch='reset': {reason} The posterior starts again, as vade_posterior_init says "
        f"({trainer.args.vade_posterior_init}), for all {len(trainer.train_dataset)} rows, and the rollouts are "
        f"counted from 0; the saved one stays as it is in {checkpoint}."
    )


def _begin_anew(trainer: Any, selection: Any) -> None:
    """Choose a generation batch at the next step, and keep the log of the choices so far under another name."""
    trainer.selection, trainer._step, trainer._buffered_inputs = selection, 0, None
    if trainer.accelerator.is_main_process:
        kept = selection.log.set_aside()
        if kept:
            logger.warning(f"The choices so far are kept in {kept}; this run's are in {selection.log.path}.")


def _refuse_differing_replicas(trainer: Any) -> None:
    digests = gather_object([state_digest(trainer.selection.sampler)])
    differing = {rank: digest[:12] for rank, digest in enumerate(digests) if digest != digests[0]}
    if differing:
        raise ReplicaDivergenceError(
            f"The sampler's replicas differ at step {trainer.state.global_step}: process 0 has the digest "
            f"{digests[0][:12]}, and others have {differing}. They see the same gathered rewards and must be equal; a "
            "reward function or a callback that calls trainer.selection on some processes only would do this. Nothing "
            "was saved: resume from the checkpoint before, without that."
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
    num_batches, batch_size = trainer.args.steps_per_generation, trainer.args.per_device_train_batch_size
    fits = batch is not None and _shape(batch) == (num_batches, batch_size)
    everywhere = all(gather_object([fits]))
    trainer._buffered_inputs = batch if everywhere else None
    if _inside_generation_batch(trainer) and not everywhere:
        logger.warning(
            f"{checkpoint} was saved inside a generation batch, and it does not hold its completions for the "
            f"{accelerator.num_processes} processes and {num_batches} micro-batches of {batch_size} of this run: a "
            "new generation batch is chosen and generated in its place, so this run will not repeat the one that was "
            "stopped."
        )


def _shape(batch: MicroBatches) -> tuple[int, int]:
    """Micro-batches, and completions in each."""
    return len(batch), len(batch[0]["completion_ids"])
