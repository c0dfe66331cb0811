"""The files of VADE in a checkpoint: the posterior with its metadata, and a generation batch in use."""

import os
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object

from trl_vade.errors import ReplicaDivergenceError, SnapshotMismatchError, abbreviated
from trl_vade.samplers.snapshot import load_snapshot, save_snapshot, state_digest

from ..run_facts import posterior_identity, run_facts
from .generation_batch import layout, resume_batch_in_use, save_batch_in_use

logger = get_logger(__name__)


def save_posterior(trainer: Any, directory: str | os.PathLike[str], *, checkpoint: bool) -> None:
    """Write the posterior of `trainer`, which has a selection, into `directory`.

    For a `checkpoint` all processes must take part. It compares the replicas first, and writes the generation batch in
    use, and a copy of the posterior into the output directory (`hub_strategy="every_save"` uploads no such folder).

    Raises:
        ReplicaDivergenceError: the sampler's replicas differ; nothing is written.
        OSError: a file cannot be written.
    """
    selection = trainer.selection
    if checkpoint:
        _refuse_differing_replicas(trainer)
        save_batch_in_use(trainer, directory)
    if not trainer.args.should_save:
        return
    now = {"global_step": trainer.state.global_step, "micro_step": trainer._step, "layout": layout(trainer)}
    selection.feedback.log.sync()
    metadata = run_facts(trainer) | {"run": selection.feedback.state_dict() | now}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        save_snapshot(target, selection.sampler, metadata=metadata, sample_key=selection.sample_keys)


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior of `checkpoint` into `trainer`, and the generation batch if it was in use.

    Raises:
        SnapshotError: the posterior is missing, damaged, of another save than the trainer state, or of another run.
    """
    snapshot, sampler, feedback = load_snapshot(checkpoint), trainer.selection.sampler, trainer.selection.feedback
    feedback.adopt_signal(snapshot.metadata)
    run = snapshot.metadata.get("run", {})
    rows = {"rows": snapshot.sampler_state["posterior"]["num_samples"]}
    theirs = snapshot.metadata | rows | {"global_step": run.get("global_step")}
    ours = posterior_identity(trainer) | {"rows": len(trainer.selection.dataset)}
    ours["global_step"] = trainer.state.global_step
    if other := {name: (theirs.get(name), value) for name, value in ours.items() if theirs.get(name) != value}:
        differences = ", ".join(f"{name} was {before!r} and is {now!r}" for name, (before, now) in other.items())
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} belongs to another run or save: {differences}. Give this run the same, or "
            f"start a new run of the model in {checkpoint} with another output_dir. There "
            "vade_posterior_init=<this folder> and vade_warm_start_discount=1 keep the counts of the shared rows."
        )
    sampler.load_state_dict(snapshot.sampler_state)
    feedback.load_state_dict(run)
    feedback.resume_log(run)
    if rules := sampler.changed_rules(snapshot.sampler_state):
        logger.warning(
            f"Rules of the sampler differ from those of {checkpoint} (before, now): {abbreviated(rules)}. The counts, "
            "the visits and the random stream go on."
        )
    resume_batch_in_use(trainer, checkpoint, run)


def _refuse_differing_replicas(trainer: Any) -> None:
    digests = [digest[:12] for digest in gather_object([state_digest(trainer.selection.sampler)])]
    if len({*digests}) > 1:
        raise ReplicaDivergenceError(
            f"The sampler's replicas differ at step {trainer.state.global_step}; their digests by process are "
            f"{digests}. A likely cause is a reward function or a callback that calls trainer.selection on some "
            "processes only, or a sampler of your own with random numbers that no seed fixes. Nothing was saved. "
            "Remove the cause and resume from the previous checkpoint."
        )
