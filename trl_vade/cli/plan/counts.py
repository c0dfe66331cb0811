"""What a recipe means in counts, before anything is loaded: batches, updates, generation batches, rollouts.

The rules are those of TRL 1.16 (`RepeatSampler`, `GRPOTrainer._prepare_inputs`) and transformers 5.23
(`Trainer.set_initial_training_values`); tests hold them against the counters of real runs.
"""

import math
from dataclasses import dataclass

from trl import GRPOConfig

from trl_vade.errors import ConfigurationError
from trl_vade.trainer.grpo_config import VADEGRPOConfig
from trl_vade.trainer.presets import is_adaptive, setting


@dataclass(frozen=True)
class Plan:
    """The counts of a run. All are of the whole run and all processes, unless the name says otherwise."""

    rows: int  # of the training set
    processes: int
    rows_per_generation_batch: int
    completions_per_generation_batch: int
    completions_per_update: int  # the last update of an epoch has fewer where micro-batches are left over
    updates_per_generation_batch: float  # below 1 where an update takes several generation batches
    generation_batches_per_epoch: int
    generation_batches: int
    updates: int
    epochs: float
    initial_rollouts: int  # Algorithm 1, lines 1-4; 0 without `vade_posterior_init="rollout"`
    rollouts: int  # the initial ones included; evaluation is not
    most_rollouts: int  # the same with every refill of dynamic sampling; equal to `rollouts` without it

    @property
    def rows_per_update(self) -> float:
        """Rows whose completions an update sees; several updates may share a row."""
        return self.completions_per_update / (self.completions_per_generation_batch / self.rows_per_generation_batch)


def planned_config(processes: int) -> type[VADEGRPOConfig]:
    """`VADEGRPOConfig` as it would be made by each of so many processes, whatever this machine has."""

    @dataclass
    class PlannedConfig(VADEGRPOConfig):
        world_size = property(lambda self: processes)

        def __post_init__(self) -> None:
            self.planned_on_cpu = self.use_cpu
            self.use_cpu = True  # no GPU is looked for, and none is needed for bf16
            super().__post_init__()

    return PlannedConfig


def make_plan(args: GRPOConfig, rows: int) -> Plan:
    """Count what `GRPOTrainer` will do with `rows` training rows on `args.world_size` processes.

    Args:
        args: a configuration with VADE's fields, made for the number of processes it will run on.
        rows: rows of the training set, at least 1.

    Raises:
        ConfigurationError: where no generation batch can be filled, or vLLM's processes do not divide.
    """
    # TRL 1.16 refuses this only on the machine with the GPUs (`VLLMGeneration._init_vllm`).
    parallel = args.vllm_tensor_parallel_size
    if args.use_vllm and args.vllm_mode == "colocate" and args.world_size % parallel:
        raise ConfigurationError(
            f"vllm_tensor_parallel_size={parallel} on {args.world_size} processes: each colocated engine takes "
            f"{parallel} of them, so their number must be a multiple of it. Change one of the two."
        )
    group = args.num_generations
    batch_rows = args.generation_batch_size // group
    if rows < batch_rows:
        raise ConfigurationError(
            f"The training set has {rows} rows and a generation batch takes {batch_rows} "
            f"(per_device_train_batch_size {args.per_device_train_batch_size} x {args.world_size} processes x "
            f"steps_per_generation {args.steps_per_generation} / num_generations {group}). RepeatSampler drops a "
            "batch that is not full, so nothing would be trained. Add rows, or lower per_device_train_batch_size or "
            "steps_per_generation."
        )
    batches_per_epoch = rows // batch_rows
    updates, epochs, generation_batches = _schedule(args, batches_per_epoch)
    initial = _initial_rollouts(args, rows, batch_rows)
    trained = generation_batches * args.generation_batch_size
    refills = setting(args, "max_refills") if setting(args, "dynamic_sampling") else 0
    return Plan(
        rows=rows,
        processes=args.world_size,
        rows_per_generation_batch=batch_rows,
        completions_per_generation_batch=args.generation_batch_size,
        completions_per_update=args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps,
        updates_per_generation_batch=_micro_batches(args) / args.gradient_accumulation_steps,
        generation_batches_per_epoch=batches_per_epoch,
        generation_batches=generation_batches,
        updates=updates,
        epochs=epochs,
        initial_rollouts=initial,
        rollouts=initial + trained,
        most_rollouts=initial + trained * (1 + refills),
    )


def _micro_batches(args: GRPOConfig) -> int:
    """Micro-batches of a process in one generation batch: each of its slices is trained on `num_iterations` times."""
    return args.steps_per_generation * args.num_iterations


def _schedule(args: GRPOConfig, batches_per_epoch: int) -> tuple[int, float, int]:
    """Return updates, epochs and generation batches of the run.

    The loader of a process has one item for each micro-batch. An epoch's last update takes what is left over, and the
    run ends inside an epoch where `max_steps` or a fraction of an epoch says so.
    """
    accumulation = args.gradient_accumulation_steps
    loader = batches_per_epoch * _micro_batches(args)
    updates_per_epoch = -(-loader // accumulation)
    updates = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * updates_per_epoch)
    whole_epochs, rest = divmod(updates, updates_per_epoch)
    in_last = min(rest * accumulation, loader)
    generation_batches = whole_epochs * batches_per_epoch + -(-in_last // _micro_batches(args))
    return updates, whole_epochs + in_last / loader, generation_batches


def _initial_rollouts(args: GRPOConfig, rows: int, batch_rows: int) -> int:
    """Rollouts of Algorithm 1, lines 1-4: every row once, the last batch filled up until it divides."""
    if not is_adaptive(args) or setting(args, "posterior_init") != "rollout":
        return 0
    last = rows % batch_rows
    while last * args.num_generations % args.world_size:
        last += 1
    return (rows // batch_rows * batch_rows + last) * args.num_generations
