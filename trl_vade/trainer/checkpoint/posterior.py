"""The files of VADE in a checkpoint: the posterior with its metadata, and a generation batch in use."""

import os
from typing import Any

from accelerate.logging import get_logger
from accelerate.utils import gather_object
from trl.trainer.utils import get_config_model_id

from trl_vade.errors import (
    ReplicaDivergenceError,
    SnapshotError,
    SnapshotMismatchError,
    SnapshotNotFoundError,
)
from trl_vade.hub.uploading import hub_id
from trl_vade.samplers.rules import under_rules_of
from trl_vade.samplers.snapshot import Snapshot, load_snapshot, save_snapshot, state_digest

from ..initial_posterior import initial_posterior_facts
from ..presets import is_adaptive
from ..trained_counts import TrainedCounts
from .generation_batch import layout, resume_batch_in_use, save_batch_in_use
from .mismatch import compare_rows, posterior_identity, resume_joined, resume_stock, start_again

logger = get_logger(__name__)


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
    sampler, unsaved = trainer.selection.sampler, None
    if checkpoint:
        _refuse_differing_replicas(trainer)
        unsaved = save_batch_in_use(trainer, directory)
    if not trainer.args.should_save:
        return
    run = {
        **trainer.selection.feedback.state_dict(),
        "global_step": trainer.state.global_step,
        "micro_step": trainer._step,
        "layout": layout(trainer),
        "generation_batch": unsaved,
    }
    trainer.selection.feedback.log.sync()
    about = {"base_model": hub_id(get_config_model_id(trainer.model.config)), **initial_posterior_facts(trainer.args)}
    metadata = posterior_identity(trainer) | about | {"columns": trainer.selection.dataset.column_names, "run": run}
    for target in {str(directory), trainer.args.output_dir} if checkpoint else {directory}:
        save_snapshot(target, sampler, metadata=metadata, sample_key=trainer.selection.sample_keys[0])


def resume_posterior(trainer: Any, checkpoint: str | os.PathLike[str]) -> None:
    """Load the posterior of `checkpoint` into `trainer`, and the generation batch if it was in use.

    If the posterior belongs to another run, `vade_on_mismatch` decides. A new posterior never starts without a
    message. `uniform` also resumes from a checkpoint of `GRPOTrainer`, because its choices need no posterior.

    Raises:
        SnapshotError: the posterior is missing, damaged, of another save than the trainer state, or of another run.
    """
    policy, snapshot = trainer.args.vade_on_mismatch, None
    try:
        snapshot = load_snapshot(checkpoint)
        run = _go_on(trainer, checkpoint, snapshot)
    except SnapshotError as error:
        about_another_run = snapshot is not None and isinstance(error, SnapshotMismatchError)
        ours = TrainedCounts.__name__ in trainer.state.stateful_callbacks  # every run with a selection has it
        of_stock = isinstance(error, SnapshotNotFoundError) and not ours
        if of_stock and not is_adaptive(trainer.args):
            resume_stock(trainer, checkpoint)
        elif policy == "reset":
            start_again(trainer, checkpoint, error)
        elif policy == "join" and about_another_run:
            resume_joined(trainer, checkpoint, snapshot, error)
        else:
            join = "'join' keeps the counts of the rows that both have, " if about_another_run else ""
            raise type(error)(
                f"{error} Or set vade_on_mismatch: {join}'reset' starts a new posterior. The weights and the "
                "optimiser come from the checkpoint in any case."
            ) from error
        trainer._step, trainer._buffered_inputs = 0, None  # the next step generates
    else:
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
    state, rules = under_rules_of(sampler, snapshot.sampler_state)
    sampler.load_state_dict(state)
    trainer.selection.feedback.load_state_dict(run)
    trainer.selection.feedback.resume_log(run)
    if rules:
        changed = ", ".join(f"{name} {str(old)[:40]} -> {str(new)[:40]}" for name, (old, new) in rules.items())
        logger.warning(
            f"Rules of the sampler differ from those of {checkpoint}: {changed}. This run's hold from now on. The "
            "counts, the visits and the random stream go on."
        )
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
