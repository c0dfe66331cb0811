"""`trl-vade plan`: what a recipe means in batches, updates and rollouts, before a model is loaded.

The rules are those of TRL 1.16 (`RepeatSampler`, `GRPOTrainer._prepare_inputs`) and transformers 5.23
(`Trainer.set_initial_training_values`); tests hold them against the counters of real runs.
"""

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import find_benchmarks
from trl_vade.trainer.grpo_config import VADEGRPOConfig
from trl_vade.trainer.presets import is_adaptive, setting

from .data_sets import load_splits, pick_split, why_not_loaded
from .parsing import CommandArguments, Parser, VADEScriptArguments, read_command
from .recipes import TESTBED, read_processes
from .tables import print_table

MEMORY = "For the memory of weights, gradients and optimiser see `accelerate estimate-memory MODEL`."


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


def print_plan(arguments: list[str], *, as_json: bool = False) -> None:
    """Print what a recipe means.

    Args:
        arguments: those of a training run (`--config recipe.yaml --learning_rate 1e-6 ...`).
        as_json: Print one JSON object.

    Raises:
        ConfigurationError: the recipe cannot run so, or cannot be read.
    """
    command, rest = read_command(arguments)
    try:
        script_args, args, _ = Parser(planned_config(_processes(command, rest))).read(rest)
        if lmms_options := script_args.lmms_options():
            find_benchmarks(lmms_options["tasks"])
        plan = make_plan(args, _number_of_rows(script_args))
    except (ValueError, OSError) as error:  # ConfigurationError is one; TRL refuses by ValueError, too; no such file
        launch = (
            ""
            if command.accelerate_config or command.num_processes
            else (" (Planned for the processes here. --accelerate_config fsdp2 plans for that launch.)")
        )
        raise ConfigurationError(f"This recipe cannot run so. {error}{launch}") from error
    if as_json:
        print(json.dumps(asdict(plan), indent=2))
    else:
        print_table("The plan", plan_rows(plan))
        print(MEMORY)


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the names and the printed values of a plan's counts."""
    rows, completions = plan.rows_per_generation_batch, plan.completions_per_generation_batch
    rollouts = f"{plan.rollouts:,}"
    if plan.initial_rollouts:
        rollouts += f", of these {plan.initial_rollouts:,} before the first update"
    if plan.most_rollouts > plan.rollouts:
        rollouts += f"; with refills at most {plan.most_rollouts:,}"
    return [
        ("processes", f"{plan.processes}"),
        ("training rows", f"{plan.rows:,}"),
        ("a generation batch", f"{rows:,} rows x {completions // rows} = {completions:,} completions"),
        ("an optimiser step", f"{plan.completions_per_update:,} completions ({plan.rows_per_update:,g} rows' worth)"),
        ("optimiser steps a generation batch", f"{plan.updates_per_generation_batch:g}"),
        ("generation batches", f"{plan.generation_batches:,} ({plan.generation_batches_per_epoch:,} an epoch)"),
        ("optimiser steps", f"{plan.updates:,}"),
        ("epochs", f"{plan.epochs:g}"),
        ("rollouts, without evaluation", rollouts),
    ]


def planned_config(processes: int) -> type[VADEGRPOConfig]:
    """`VADEGRPOConfig` as it would be made by each of so many processes, whatever this machine has."""

    @dataclass
    class PlannedConfig(VADEGRPOConfig):
        world_size = property(lambda self: processes)

        def __post_init__(self) -> None:
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


def _processes(command: CommandArguments, arguments: list[str]) -> int:
    """Return the number of processes: of the command, of a launcher around it, or that which the recipe is for."""
    if command.num_processes is None and command.accelerate_config:
        return read_processes(command.accelerate_config)
    words = (part for word in arguments for part in word.split("=", 1))
    flags = {word.replace("-", "_"): value for word, value in pairwise(words)}
    found: Any = command.num_processes or os.environ.get("WORLD_SIZE") or flags.get("__plan_processes")
    if found is None and "--config" in arguments:
        with suppress(OSError, yaml.YAMLError, AttributeError):  # the parser says what is wrong with it
            recipe = yaml.safe_load(Path(arguments[arguments.index("--config") + 1]).read_text(encoding="utf-8"))
            found = recipe.get("plan_processes")
    return max(int(found or 1), 1)


def _number_of_rows(script_args: VADEScriptArguments) -> int:
    """Return the rows of the training split: as told, or of a data set that is here. Nothing is downloaded."""
    name = script_args.dataset_name
    here = name == TESTBED or Path(str(name)).exists()
    if not here or script_args.dataset_streaming:
        if script_args.plan_rows is None:
            raise ConfigurationError(
                f"dataset_name={name!r} is no folder here or a stream, and a plan downloads nothing. Give the number "
                "of rows of the training split, such as --plan_rows 8524 (90 % of the paper's 9,471)."
            )
        return script_args.plan_rows
    from datasets.exceptions import DatasetsError

    try:
        splits = load_splits(script_args)
    except (DatasetsError, RuntimeError, yaml.YAMLError) as error:  # datasets 5.2: its scripts, its card
        raise ConfigurationError(f"dataset_name={name!r} cannot be loaded: {why_not_loaded(error)}.") from error
    return len(pick_split(splits, "dataset_train_split", script_args))
