"""The files of VADE in a checkpoint: the posterior with its metadata, and a generation batch in use."""

import os
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object

from trl_vade.data.row_keys import find_rows
from trl_vade.errors import ReplicaDivergenceError, SnapshotError, SnapshotMismatchError, abbreviated
from trl_vade.samplers.snapshot import Snapshot, load_snapshot, save_snapshot, state_digest

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
    run = {
        **selection.feedback.state_dict(),
        "global_step": trainer.state.global_step,
        "micro_step": trainer._step,
        "layout": layout(trainer),
    }
    selection.feedback.log.sync()
    metadata = run_facts(trainer) | {"columns": selection.dataset.column_names, "run": run}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        save_snapshot(target, selection.sampler, metadata=metadata, sample_key=selection.sample_keys[0])


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior of `checkpoint` into `trainer`, and the generation batch if it was in use.

    Raises:
        SnapshotError: the posterior is missing, damaged, of another save than the trainer state, or of another run.
    """
    try:
        run = _go_on(trainer, checkpoint, load_snapshot(checkpoint))
    except SnapshotError as error:
        keeping = "vade_posterior_init=<this folder> and vade_warm_start_discount=1 keep the counts of the shared rows"
        raise type(error)(
            f"{error} To go on from these weights, start a new run of the model in {checkpoint} with another "
            f"output_dir{f': {keeping}' if isinstance(error, SnapshotMismatchError) else ''}."
        ) from error
    resume_batch_in_use(trainer, checkpoint, run)


def _go_on(trainer: Any, checkpoint: str | os.PathLike[str], snapshot: Snapshot) -> dict[str, Any]:
    """Load the posterior and return the facts of its run.

    A posterior of another run or save raises `SnapshotMismatchError` and changes nothing.
    """
    trainer.selection.feedback.adopt_signal(snapshot.metadata)
    run = snapshot.metadata.get("run", {})
    ours = posterior_identity(trainer) | {"global_step": trainer.state.global_step}
    theirs = snapshot.metadata | {"global_step": run.get("global_step")}
    saved = {name: theirs.get(name) for name, value in ours.items() if theirs.get(name) != value}
    if saved:
        here = {name: ours[name] for name in saved}
        rows = compare_rows(trainer, snapshot) if "dataset_fingerprint" in saved else ""
        raise SnapshotMismatchError(
            f"The posterior in {checkpoint} belongs to another run or save: {saved} there, {here} here{rows}. A "
            "posterior is valid only for the rows, the success signal, the group size and the step of its run. Give "
            "this run the same, or resume from another checkpoint."
        )
    sampler = trainer.selection.sampler
    sampler.load_state_dict(snapshot.sampler_state)
    trainer.selection.feedback.load_state_dict(run)
    trainer.selection.feedback.resume_log(run)
    if rules := sampler.changed_rules(snapshot.sampler_state):
        changed = ", ".join(f"{name} {str(old)[:40]} -> {str(new)[:40]}" for name, (old, new) in rules.items())
        logger.warning(
            f"Rules of the sampler differ from those of {checkpoint}: {changed}. This run's hold from now on. The "
            "counts, the visits and the random stream go on."
        )
    return run


def _refuse_differing_replicas(trainer: Any) -> None:
    digests = [digest[:12] for digest in gather_object([state_digest(trainer.selection.sampler)])]
    if differing := {rank: digest for rank, digest in enumerate(digests) if digest != digests[0]}:
        raise ReplicaDivergenceError(
            f"The sampler's replicas differ at step {trainer.state.global_step}: process 0 has digest {digests[0]}, "
            f"others have {differing}. A likely cause is a reward function or a callback that calls trainer.selection "
            "on some processes only, or a sampler of your own with random numbers that no seed fixes. Nothing was "
            "saved. Remove the cause and resume from the previous checkpoint."
        )


def compare_rows(trainer: Any, snapshot: Snapshot) -> str:
    """Return what the rows of the snapshot and of the run have in common, for a message."""
    keys, num_saved = trainer.selection.sample_keys[0], snapshot.sampler_state["posterior"]["num_samples"]
    scored = [] if snapshot.sample_key is None else find_rows(snapshot.sample_key, keys)[0].tolist()
    columns = sorted({*snapshot.metadata.get("columns", [])} ^ {*trainer.selection.dataset.column_names})
    rows = f"{num_saved} training rows there, {len(keys)} here; {sum(scored)} of the {len(scored)} rows scored there"
    return f" ({rows} are here; columns of one side only, as by remove_unused_columns: {abbreviated(columns)})"
