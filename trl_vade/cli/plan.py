"""`trl-vade plan`: what a recipe means in batches, updates and rollouts, before a model is loaded.

The rules are those of TRL 1.16 and transformers 5.23; tests hold them against the counters of real runs.
"""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from trl import GRPOConfig

from trl_vade.errors import ConfigurationError
from trl_vade.trainer.batch import MAX_REFILLS
from trl_vade.trainer.grpo_config import VADEGRPOConfig
from trl_vade.trainer.presets import is_adaptive, setting

from .commands import print_table
from .parsing import CommandArguments, Parser, VADEScriptArguments
from .recipes import TESTBED, accelerate_file, pick_split


@dataclass(frozen=True)
class Plan:
    """The counts of a run. All are of the whole run and all processes, unless the name says otherwise."""

    rows: int  # of the training set
    processes: int
    rows_per_generation_batch: int
    completions_per_generation_batch: int
    completions_per_update: int  # the last update of an epoch has fewer where micro-batches are left over
    replayed_batches: int  # generation batches whose groups may be among these completions, too
    rows_per_update: float  # whose completions an update sees; several updates may share a row
    updates_per_generation_batch: float  # below 1 where an update takes several generation batches
    generation_batches_per_epoch: int
    generation_batches: int
    updates: int
    epochs: float
    initial_rollouts: int  # Algorithm 1, lines 1-4; 0 without `vade_posterior_init="rollout"`
    rollouts: int  # the initial ones included; evaluation is not
    most_rollouts: int  # the same with every refill of dynamic sampling; equal to `rollouts` without it


def print_plan(command: CommandArguments, arguments: list[str], *, as_json: bool = False) -> None:
    """Print what a recipe means, from the command's flags and the run's arguments, or raise `ConfigurationError`."""
    parser = Parser()
    parser.dataclass_types = [VADEScriptArguments]  # a configuration is made for a number of processes
    (script_args,) = parser.read(arguments)
    processes = _processes(command, script_args)
    try:
        _, args, _ = Parser(planned_config(processes)).read(arguments)
        plan = make_plan(args, _number_of_rows(script_args))
    except ConfigurationError as error:
        raise ConfigurationError(f"This recipe cannot run so on {processes} process(es). {error}") from error
    if as_json:
        print(json.dumps(asdict(plan), indent=2))
    else:
        print_table("The plan", plan_rows(plan))
        print("For the memory of weights, gradients and optimiser see `accelerate estimate-memory MODEL`.")


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return the names and the printed values of a plan's counts."""
    rows, completions = plan.rows_per_generation_batch, plan.completions_per_generation_batch
    rollouts = f"{plan.rollouts:,}"
    if plan.initial_rollouts:
        rollouts += f", of these {plan.initial_rollouts:,} before the first update"
    if plan.most_rollouts > plan.rollouts:
        rollouts += f"; with refills at most {plan.most_rollouts:,}"
    update = f"{plan.completions_per_update:,} completions ({plan.rows_per_update:,g} rows' worth)"
    if plan.replayed_batches:
        update += f", at most, up to {plan.replayed_batches} batches old"
    return [
        ("processes", f"{plan.processes}"),
        ("training rows", f"{plan.rows:,}"),
        ("a generation batch", f"{rows:,} rows x {completions // rows} = {completions:,} completions"),
        ("an optimiser step", update),
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
    """Count what `GRPOTrainer` will do with `rows` rows under `args`; refuse if no generation batch can be full."""
    group = args.num_generations
    batch_rows = args.generation_batch_size // group
    if rows < batch_rows:
        raise ConfigurationError(
            f"The training set has {rows} rows and a generation batch takes {batch_rows} (per_device_train_batch_size "
            f"{args.per_device_train_batch_size} x {args.world_size} processes x steps_per_generation "
            f"{args.steps_per_generation} / num_generations {group}), so none is full. Add rows or lower one of these."
        )
    # The loader of a process has one item for each micro-batch; each slice of a generation batch is trained on
    # `num_iterations` times. An epoch's last update takes what is left over, and the run ends inside an epoch where
    # `max_steps` or a fraction of an epoch says so.
    accumulation, micro_batches = args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations
    batches_per_epoch = rows // batch_rows
    loader = batches_per_epoch * micro_batches
    updates_per_epoch = -(-loader // accumulation)
    updates = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * updates_per_epoch)
    whole_epochs, rest = divmod(updates, updates_per_epoch)
    in_last_epoch = min(rest * accumulation, loader)
    generation_batches = whole_epochs * batches_per_epoch + -(-in_last_epoch // micro_batches)
    initial = 0
    if is_adaptive(args) and setting(args, "posterior_init") == "rollout":  # each row, and some until they divide
        initial = rows * group
        while initial % args.world_size:
            initial += group
    trained = generation_batches * args.generation_batch_size
    refills = MAX_REFILLS * args.vade_dynamic_sampling
    per_update = args.per_device_train_batch_size * args.world_size * accumulation
    return Plan(
        rows=rows,
        processes=args.world_size,
        rows_per_generation_batch=batch_rows,
        completions_per_generation_batch=args.generation_batch_size,
        completions_per_update=per_update,
        replayed_batches=args.vade_replay,
        rows_per_update=per_update / group,
        updates_per_generation_batch=micro_batches / accumulation,
        generation_batches_per_epoch=batches_per_epoch,
        generation_batches=generation_batches,
        updates=updates,
        epochs=whole_epochs + in_last_epoch / loader,
        initial_rollouts=initial,
        rollouts=initial + trained,
        most_rollouts=initial + trained * (1 + refills),
    )


def _processes(command: CommandArguments, script_args: VADEScriptArguments) -> int:
    """Return the number of processes: of the command, of a launcher around it, or that which the recipe is for."""
    if command.num_processes is None and command.accelerate_config is not None:
        path = accelerate_file(command.accelerate_config)
        try:
            return int(yaml.safe_load(path.read_text(encoding="utf-8"))["num_processes"])
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
            raise ConfigurationError(
                f"{path} is no accelerate configuration with num_processes ({error!r}). Give --num_processes."
            ) from error
    return max(int(command.num_processes or os.environ.get("WORLD_SIZE") or script_args.plan_processes), 1)


def _number_of_rows(script_args: VADEScriptArguments) -> int:
    name = script_args.dataset_name
    if (name == TESTBED or Path(str(name)).exists()) and not script_args.dataset_streaming:
        return len(pick_split(script_args.load_splits(), "--dataset_train_split", script_args.dataset_train_split))
    if script_args.plan_rows is None:
        raise ConfigurationError(
            f"dataset_name={name!r} is no folder here or a stream, and a plan downloads nothing. Give the number of "
            "rows of the training split, such as --plan_rows 8524 (90 % of the paper's 9,471)."
        )
    return script_args.plan_rows
