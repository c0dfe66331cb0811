"""A plan and its memory estimate as they are printed."""

from .launch import Launch
from .memory import MemoryEstimate, gib
from .plan import Plan


def plan_rows(plan: Plan, launch: Launch) -> list[tuple[str, str]]:
    """The counts of a plan, as they are printed."""
    rows, completions = plan.rows_per_generation_batch, plan.completions_per_generation_batch
    rollouts = f"{plan.rollouts:,}"
    if plan.initial_rollouts:
        rollouts += f", of these {plan.initial_rollouts:,} before the first update"
    if plan.most_rollouts > plan.rollouts:
        rollouts += f"; with refills at most {plan.most_rollouts:,}"
    return [
        ("processes", f"{plan.processes} (sharding: {launch.sharding})"),
        ("training rows", f"{plan.rows:,}"),
        ("a generation batch", f"{rows:,} rows x {completions // rows} = {completions:,} completions"),
        ("an optimiser step", f"{plan.completions_per_update:,} completions ({plan.rows_per_update:,g} rows' worth)"),
        ("optimiser steps a generation batch", f"{plan.updates_per_generation_batch:g}"),
        ("generation batches", f"{plan.generation_batches:,} ({plan.generation_batches_per_epoch:,} an epoch)"),
        ("optimiser steps", f"{plan.updates:,}"),
        ("epochs", f"{plan.epochs:g}"),
        ("rollouts, without evaluation", rollouts),
    ]


def memory_rows(estimate: MemoryEstimate) -> list[tuple[str, str]]:
    """The phases of an estimate and their parts, as they are printed; `*` marks what is certain."""
    rows = []
    for phase, parts in estimate.phases.items():
        rows.append((phase.upper(), gib(estimate.total(phase))))
        rows += [(f"  {part.name}{' *' if part.certain else ''}", gib(part.bytes)) for part in parts]
    return rows


def verdict(estimate: MemoryEstimate) -> str:
    """Whether the estimated parts fit, too, and what to do if not."""
    tightest = max(estimate.phases, key=estimate.total)
    spare = estimate.gpu - estimate.total(tightest)
    if estimate.fits:
        return f"By this estimate it fits, with {gib(spare)} to spare in {tightest}."
    return (
        f"By this estimate it does NOT fit at these lengths: {tightest} is {gib(-spare)} over. Lower\n"
        "per_device_train_batch_size, and raise gradient_accumulation_steps and steps_per_generation as much (no\n"
        "count above changes), lower vllm_gpu_memory_utilization, or filter out the longest prompts."
    )
