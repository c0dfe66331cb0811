"""A plan on the terminal: the arguments of a training run in, its counts and its GPU memory out.

`trl-vade plan` and `trl-vade train --plan` are this. `counts` counts and `memory` estimates.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from trl.trainer.model_config import ModelConfig

from trl_vade.errors import ConfigurationError
from trl_vade.evaluation.benchmarks import find_benchmarks

from ..data_sets import TESTBED, load_splits, pick_split
from ..parsing import Parser
from ..recipes import Launch, read_launch
from ..tables import print_table
from ..training_arguments import CommandArguments, VADEScriptArguments, read_command, refuse_command_in_recipe
from .counts import Plan, make_plan, planned_config
from .memory import GIB, Lengths, MemoryEstimate, estimate_memory, gib, why_no_estimate
from .model_shape import read_model_shape


def plan_rows(plan: Plan, launch: Launch) -> list[tuple[str, str]]:
    """Return the names and the printed values of a plan's counts."""
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
    """Return the phases of an estimate and their parts, as printed; `*` marks a certain part."""
    rows = []
    for phase, parts in estimate.phases.items():
        rows.append((phase.upper(), gib(estimate.total(phase))))
        rows += [(f"  {part.name}{' *' if part.certain else ''}", gib(part.bytes)) for part in parts]
    return rows


def verdict(estimate: MemoryEstimate) -> str:
    """Say whether the estimated parts fit, too, and what to do if not."""
    tightest = max(estimate.phases, key=estimate.total)
    spare = estimate.gpu - estimate.total(tightest)
    if estimate.fits:
        return f"By this estimate it fits, with {gib(spare)} to spare in {tightest}."
    return (
        f"By this estimate it does NOT fit at these lengths: {tightest} is {gib(-spare)} over. Lower\n"
        "per_device_train_batch_size, and raise gradient_accumulation_steps and steps_per_generation as much (no\n"
        "count above changes), lower vllm_gpu_memory_utilization, or filter out the longest prompts."
    )


def print_plan(arguments: list[str], *, as_json: bool = False) -> None:
    """Print what a recipe means: counts, then the estimate of GPU memory.

    Args:
        arguments: those of a training run (`--config recipe.yaml --learning_rate 1e-6 ...`) and of `CommandArguments`.
        as_json: Print one JSON object, with sizes in bytes.

    Raises:
        ConfigurationError: the recipe cannot run so, or cannot be read.
    """
    command, rest = read_command(arguments)
    command.plan_accelerate = command.plan_accelerate or command.accelerate_config
    try:
        launch = _launch(command)
        script_args, args, model_args = Parser(planned_config(launch.processes)).read(rest)
        refuse_command_in_recipe(script_args)
        if lmms_options := script_args.lmms_options():
            find_benchmarks(lmms_options["tasks"])
        plan = make_plan(args, _number_of_rows(script_args, command))
        memory = _memory(command, args, model_args, launch)
        if as_json:
            print(json.dumps({**asdict(plan), "sharding": launch.sharding, "memory": memory.as_json()}, indent=2))
        else:
            print_table("The plan", plan_rows(plan, launch))
            memory.print(args)
        if memory.estimate is not None:
            memory.estimate.refuse_what_cannot_fit()
            if not as_json:
                print(verdict(memory.estimate))
    except (ValueError, OSError) as error:  # ConfigurationError is one; TRL refuses by ValueError, too; no such file
        message = f"This recipe cannot run so. {error}"
        if not command.plan_accelerate and not command.plan_processes:
            message += " (Planned as launched here. --plan_accelerate fsdp2 plans for that launch.)"
        raise ConfigurationError(message) from error


@dataclass(frozen=True)
class _Memory:
    """The estimate of GPU memory with what it is an estimate of, or the reason why there is none."""

    reason: str | None = None
    estimate: MemoryEstimate | None = None
    parameters: int = 0
    lengths: Lengths | None = None

    def as_json(self) -> dict[str, Any]:
        if self.estimate is None:
            return {"no_estimate": self.reason}
        phases = {phase: {part.name: part.bytes for part in parts} for phase, parts in self.estimate.phases.items()}
        names = ("kv_cache_tokens", "parallel_sequences", "host_bytes", "fits")
        more = {name: getattr(self.estimate, name) for name in names}
        return {"bytes_of_a_gpu": self.estimate.gpu, "bytes": phases, "parameters": self.parameters, **more}

    def print(self, args: Any) -> None:
        estimate, lengths = self.estimate, self.lengths
        if estimate is None or lengths is None:
            print(f"No estimate of GPU memory: {self.reason}.")
            return
        print_table(f"Estimated memory of one GPU, which has {gib(estimate.gpu)}", memory_rows(estimate))
        print(
            f"{self.parameters:,} parameters. Micro-batches of {args.per_device_train_batch_size} rows, padded to\n"
            f"prompts of {lengths.prompt:,} tokens and completions of {lengths.completion:,}, with "
            f"{lengths.image:,} image\ntokens a row on average.\n"
            "* certain; the rest is an estimate. It was not yet compared with a measurement on a GPU.\n"
            "Left out: fragmentation, the CUDA context, communication buffers."
        )
        if estimate.host_bytes:
            print(f"Host memory, per process: {gib(estimate.host_bytes)} for images of a generation batch, pinned.")
        if estimate.kv_cache_tokens is not None:
            print(
                f"vLLM's share: at most {estimate.kv_cache_tokens:,} tokens of KV cache in each engine, or "
                f"{estimate.parallel_sequences:,} of the longest sequences at a time."
            )


def _launch(command: CommandArguments) -> Launch:
    launch = Launch() if command.plan_accelerate is None else read_launch(command.plan_accelerate)
    if command.plan_processes is not None:
        launch = Launch(command.plan_processes, launch.sharding, launch.mixed_precision)
    elif command.plan_accelerate is None:
        launch = Launch(int(os.environ.get("WORLD_SIZE", "1")))
    if launch.processes < 1:
        raise ConfigurationError(f"{launch.processes} processes train nothing; set --plan_processes to 1 or more.")
    return launch


def _number_of_rows(script_args: VADEScriptArguments, command: CommandArguments) -> int:
    """Rows of the training split; a data set is loaded only where that takes no network."""
    if command.plan_rows is not None:
        return command.plan_rows
    name = script_args.dataset_name
    if not name:
        raise ConfigurationError(
            "No data set is named, so the number of rows is not known: set --dataset_name to a folder, or give it as "
            "--plan_rows."
        )
    if name != TESTBED and not Path(name).exists():
        raise ConfigurationError(
            f"dataset_name={name!r} is no folder here, and a plan downloads nothing. Give the number of rows of the "
            "training split, such as --plan_rows 8524 (90 % of the paper's 9,471)."
        )
    if name != TESTBED and script_args.dataset_streaming:
        raise ConfigurationError(
            "dataset_streaming is set, and a stream does not say how many rows it has: give --plan_rows."
        )
    from datasets.exceptions import DatasetsError

    from trl_vade.data.row_keys import why_not_loaded

    try:
        splits = load_splits(script_args)
    except (DatasetsError, RuntimeError, yaml.YAMLError) as error:  # datasets 5.2: its scripts, its card
        raise ConfigurationError(
            f"dataset_name={name!r} cannot be loaded: {why_not_loaded(error)}. Mend it, or give --plan_rows."
        ) from error
    return len(pick_split(splits, "dataset_train_split", script_args))


def _memory(command: CommandArguments, args: Any, model_args: ModelConfig, launch: Launch) -> _Memory:
    """Estimate the memory for `args`, a `planned_config`."""
    reason = "use_cpu is set" if args.planned_on_cpu else why_no_estimate(args, model_args)
    prompt = command.plan_prompt_tokens or args.vade_max_prompt_length
    if prompt is None and args.vllm_max_model_length is not None:
        prompt = args.vllm_max_model_length - args.max_completion_length
    if reason is None and prompt is None:
        reason = "the longest prompt is not known: set --plan_prompt_tokens or vade_max_prompt_length"
    if reason is None and model_args.model_name_or_path is None:
        reason = "no model is named: set --model_name_or_path"
    if reason is not None:
        return _Memory(reason)
    shape = read_model_shape(model_args.model_name_or_path, revision=model_args.model_revision)
    lengths = Lengths(prompt, min(command.plan_image_tokens, prompt), args.max_completion_length)
    estimate = estimate_memory(
        args,
        shape,
        launch,
        lengths,
        gpu=int(command.plan_gpu_memory * GIB),
        dtype=(args.model_init_kwargs or {}).get("dtype", model_args.dtype),
        flash="flash" in str(model_args.attn_implementation),
    )
    return _Memory(None, estimate, shape.parameters, lengths)
