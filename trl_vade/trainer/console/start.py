"""What a run says at its start: what is trained on what, and how much of the data it will visit."""

import math
from collections.abc import Iterator
from typing import Any

from trl.trainer.utils import get_config_model_id

from trl_vade.version import __version__

from ..loader import generate_every
from ..presets import is_adaptive, setting

ENOUGH = 2  # epochs; below it the posterior knows too little of most rows
TOO_FEW = (
    "Rows come too rarely to choose by: the posterior tells rows apart only after they were seen. Raise max_steps or "
    "the rows of a generation batch (gradient_accumulation_steps), use fewer rows, or start from the posterior of "
    "another run (vade_posterior_init)."
)


def header(trainer: Any, max_steps: int) -> Iterator[str]:
    """Yield the lines of the start. The last warns of rows that come too rarely to choose by."""
    yield " | ".join(_facts(trainer))
    if not hasattr(trainer.train_dataset, "__len__"):
        return
    args, rows = trainer.args, len(trainer.train_dataset)
    groups = args.generation_batch_size // trainer.num_generations
    batches = math.ceil(max_steps * args.gradient_accumulation_steps / generate_every(trainer))
    share = batches * groups / rows
    size = f"{groups:,} {'row' if groups == 1 else 'rows'} x {trainer.num_generations}"
    least = "at least " if args.vade_dynamic_sampling else ""  # a refill draws more rows
    epochs = f"{share:.1f} epochs" if share >= 1 else f"{100 * share:.2g} % of the rows"
    yield (
        f"{rows:,} rows; a generation batch is {size} = {groups * trainer.num_generations:,} completions; "
        f"{batches:,} batches = {least}{epochs}"
    )
    if trainer.selection is not None and is_adaptive(args) and share < ENOUGH and not _knows_rows(trainer):
        yield TOO_FEW


def _facts(trainer: Any) -> Iterator[str]:
    args = trainer.args
    yield f"trl_vade {__version__}"
    model = trainer.accelerator.unwrap_model(trainer.model)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    data = trainer.dataset_name
    name = str(get_config_model_id(model.config)).rstrip("/").split("/")[-1]
    yield f"{name}, {millions:,.1f} M parameters{f', on {data}' if data else ''}"
    sampler = setting(args, "sampler")
    yield f"{sampler}, {args.vade_preset}" if sampler in ("thompson", "greedy") else sampler
    yield f"{trainer.accelerator.device.type.upper()} x{trainer.accelerator.num_processes}"
    yield f"-> {args.output_dir}"


def _knows_rows(trainer: Any) -> bool:
    """Return whether the posterior does not begin at the prior: a warm start, initial rollouts, an earlier `train`."""
    inherited = trainer.selection.sampler.posterior.step > 0 and trainer.state.global_step == 0
    return inherited or setting(trainer.args, "posterior_init") != "prior"
