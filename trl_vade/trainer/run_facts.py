"""The facts of a run: those saved with its posterior, those of its model card, and those of its report."""

import os
import shlex
import sys
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from transformers.trainer_utils import has_length
from trl.trainer.utils import get_config_model_id

from trl_vade.data.row_keys import dataset_fingerprint
from trl_vade.hub.posteriors.table import named_dataset
from trl_vade.hub.uploading import hub_id, is_hub_id
from trl_vade.samplers.information import SPREAD_GAIN
from trl_vade.version import __version__

from .grpo_config import settings_in_use
from .initial_posterior import initial_posterior_facts
from .presets import PRESETS, is_own, setting

RECIPE = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size", "num_iterations"),
    *("beta", "loss_type", "epsilon", "epsilon_high", "scale_rewards"),
    *("max_completion_length", "use_vllm", "vllm_mode", "bf16"),
)
"""Fields of the settings that describe the recipe. `num_processes` is added."""
PACKAGES = ("trl", "transformers", "torch", "accelerate", "datasets", "vllm", "peft", "numpy")


def posterior_identity(trainer: Any) -> dict[str, Any]:
    """Return the facts that a posterior depends on. A run with other facts cannot continue with it."""
    return {
        "dataset_fingerprint": dataset_fingerprint(trainer.selection.sample_keys),
        **trainer.selection.feedback.signal.facts,
        "num_generations": trainer.num_generations,
        "sampler": setting(trainer.args, "sampler"),
        "seed": trainer.args.seed,
    }


def run_facts(trainer: Any, dataset: str | None = None) -> dict[str, Any]:
    """Return public facts of a posterior as JSON values, None where unknown; `dataset` names its training data."""
    args = trainer.args
    model_repo = trainer.hub_model_id or args.hub_model_id  # without its owner until the repository exists
    facts = {
        "package_version": __version__,
        "base_model": hub_id(get_config_model_id(trainer.model.config)),
        "model_repo": model_repo if is_hub_id(model_repo) and "/" in model_repo else None,
        **named_dataset(dataset or trainer.dataset_name),
        "rewards": list(trainer.reward_func_names),
        "num_generations": trainer.num_generations,
        "temperature": args.temperature,
        "seed": args.seed,
        **settings_in_use(args),
        **initial_posterior_facts(args),
    }
    if trainer.selection:
        facts |= posterior_identity(trainer)
        facts |= {"information_gain": SPREAD_GAIN} if trainer.selection.feedback.signal.is_spread else {}
    return facts


def card_facts(trainer: Any, dataset: str | None = None) -> dict[str, Any]:
    """Return the facts for the model card: `run_facts`, the recipe and, with a selection, the counts."""
    args, settings = trainer.args, trainer.args.to_dict()  # the latter without members of an Enum
    facts = run_facts(trainer, dataset)
    if trainer.selection:
        posterior = trainer.selection.sampler.posterior
        facts |= {"num_samples": posterior.num_samples, "generation_batches": posterior.step}
        facts |= posterior.decays  # not the settings: the posterior of another rule has its own
    return facts | {
        "hardware": _hardware(trainer.accelerator),
        "recipe": {
            **{field: settings[field] for field in RECIPE},
            # For a run counted in epochs it is -1 in the settings, and 0 in the state before training.
            "max_steps": max(args.max_steps, trainer.state.max_steps) or None,
            "num_processes": trainer.accelerator.num_processes,
        },
    }


def describe_run(trainer: Any) -> dict[str, Any]:
    """Return the content of `vade_run.json`: the command, settings, versions and machine of a run, for people."""
    args = trainer.args
    defaults = {each.name: each.default for each in fields(args) if each.default is not MISSING}
    words = [os.path.basename(sys.orig_argv[0]), *sys.orig_argv[1:]]
    return {
        "start": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if any("ipykernel" in word for word in words) else shlex.join(words),
        "model": get_config_model_id(trainer.model.config),
        **named_dataset(trainer.dataset_name),
        "rows": len(trainer.train_dataset) if has_length(trainer.train_dataset) else None,
        "rewards": list(trainer.reward_func_names),
        **run_names(trainer),
        "hardware": _hardware(trainer.accelerator),
        "versions": {"trl_vade": __version__} | {name: version(name) for name in PACKAGES if find_spec(name)},
        "changed_settings": sorted(name for name, default in defaults.items() if getattr(args, name) != default),
        "settings": args.to_dict() | {f"vade_{name}": setting(args, name) for name in PRESETS[args.vade_preset]},
    }


def run_names(trainer: Any) -> dict[str, Any]:
    """Return what a report needs of a run's settings: the sampler, the success reward, and `validation_answers`.

    The latter is the number of answers of a validation, by its name if there are several data sets; None for a stream.
    """
    chosen, selection = setting(trainer.args, "sampler"), trainer.selection
    own = selection is not None and is_own(trainer.args)
    rows, each = trainer.eval_dataset, trainer.num_generations_eval
    if isinstance(rows, dict):
        answers: Any = {name: len(part) * each for name, part in rows.items() if has_length(part)}
    else:
        answers = len(rows) * each if has_length(rows) else None
    return {
        "sampler": selection.sampler.kind if own else str(chosen),
        "success_reward": selection and selection.feedback.signal.facts["success_reward"],
        "validation_answers": answers,
    }


def _hardware(accelerator: Any) -> str:
    device = accelerator.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return f"{accelerator.num_processes} x {name}"
