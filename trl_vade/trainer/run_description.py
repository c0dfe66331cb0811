"""`vade_run.json`: the command, settings, versions and machine of a run, for people and for its report."""

import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from transformers.trainer_utils import has_length
from trl.trainer.utils import get_config_model_id

from trl_vade.hub.posteriors.table import named_dataset

from .presets import PRESETS, setting

PACKAGES = ("trl-vade", "trl", "transformers", "torch", "accelerate", "datasets", "vllm", "peft", "numpy")
MOST_SIGNS = 2000  # of a value
MOST_STARTS = 100  # of a run that is resumed again and again; the first is always kept


def describe_run(trainer: Any, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `vade_run.json` for a run that begins or is resumed.

    Args:
        trainer: a `VADEGRPOTrainer`.
        earlier: the content of the file of the run that is resumed, or an empty one. Its starts are kept.
    """
    args = trainer.args
    now = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "step": trainer.state.global_step}
    starts = [*earlier.get("starts", []), now]
    return {
        "starts": starts[:1] + starts[1:][1 - MOST_STARTS :],
        "command": _command(),
        "model": get_config_model_id(trainer.model.config),
        **named_dataset(trainer.dataset_name),
        "rows": len(trainer.train_dataset) if has_length(trainer.train_dataset) else None,
        "rewards": list(trainer.reward_func_names),
        **run_names(trainer),
        "machine": _machine(trainer.accelerator),
        "versions": {"python": platform.python_version()} | _versions(),
        "changed_settings": _changed(args),
        "settings": args.to_dict() | {f"vade_{name}": setting(args, name) for name in PRESETS[args.vade_preset]},
    }


def run_names(trainer: Any) -> dict[str, Any]:
    """Return what a report needs of a run's settings: the sampler, the success reward, and `validation_answers`."""
    chosen, selection = setting(trainer.args, "sampler"), trainer.selection
    own = selection is not None and chosen not in ("thompson", "greedy", "uniform")
    return {
        "sampler": selection.sampler.kind if own else str(chosen),
        "success_reward": selection and selection.feedback.signal.facts["success_reward"],
        "validation_answers": validation_answers(trainer),
    }


def validation_answers(trainer: Any) -> int | dict[str, int] | None:
    """Return the answers of a validation, by its name if there are several data sets; None for a stream."""
    rows, each = trainer.eval_dataset, trainer.num_generations_eval
    if isinstance(rows, dict):
        return {name: len(part) * each for name, part in rows.items() if has_length(part)}
    return len(rows) * each if has_length(rows) else None


def encode_run(description: Mapping[str, Any]) -> bytes:
    """Return the description as the bytes of a JSON file."""
    return (json.dumps(_plain(description), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """Return `value` as strict JSON, with texts cut after `MOST_SIGNS` characters."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text if len(text := str(value)) <= MOST_SIGNS else f"{text[:MOST_SIGNS]}..."


def _command() -> str | None:
    """Return the command of this process as a person would type it; None in a notebook."""
    words = [os.path.basename(sys.orig_argv[0]), *sys.orig_argv[1:]]
    return None if any("ipykernel" in word for word in words) else shlex.join(words)


def _changed(args: Any) -> list[str]:
    """Return the names of the settings that differ from their defaults."""
    defaults = {each.name: each.default for each in fields(args) if each.default is not MISSING}
    return sorted(name for name, default in defaults.items() if getattr(args, name) != default)


def _machine(accelerator: Any) -> dict[str, Any]:
    cuda = accelerator.device.type == "cuda"
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processes": accelerator.num_processes,
        "device": torch.cuda.get_device_name(accelerator.device) if cuda else accelerator.device.type.upper(),
        "distributed": accelerator.distributed_type.value,
        "mixed_precision": accelerator.mixed_precision,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
