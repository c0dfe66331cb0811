"""The facts of a run at one moment: those that are saved with its posterior, and those of its model card."""

from typing import Any

import torch
from trl.trainer.utils import get_config_model_id

from trl_vade.data.row_keys import dataset_fingerprint
from trl_vade.hub.posteriors.table import named_dataset
from trl_vade.hub.uploading import hub_id, is_hub_id
from trl_vade.samplers.information import SPREAD_GAIN
from trl_vade.version import __version__

from .grpo_config import settings_in_use
from .initial_posterior import initial_posterior_facts

RECIPE = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size", "num_iterations"),
    *("beta", "loss_type", "epsilon", "epsilon_high", "scale_rewards"),
    *("max_completion_length", "use_vllm", "vllm_mode", "bf16"),
)
"""Fields of the settings that describe the recipe. `num_processes` is added."""


def posterior_identity(trainer: Any) -> dict[str, Any]:
    """Return the facts that a posterior depends on. A run with other facts cannot continue with it."""
    return {
        "dataset_fingerprint": dataset_fingerprint(trainer.selection.sample_keys[0]),
        **trainer.selection.feedback.signal.facts,
        "num_generations": trainer.num_generations,
    }


def run_facts(trainer: Any, dataset: str | None = None) -> dict[str, Any]:
    """Return what a stranger needs to know about a posterior, as JSON values without a local path.

    An unknown fact is None. Settings have the preset's values, and are None for a sampler that ignores them. `dataset`
    is what the caller calls the training data, in place of `trainer.dataset_name`.
    """
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
    """Return the facts for the model card: `run_facts`, the counts and the recipe.

    Without a selection there are no counts. No process waits for another.
    """
    args, settings = trainer.args, trainer.args.to_dict()  # the latter without members of an Enum
    facts, device = run_facts(trainer, dataset), trainer.accelerator.device
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    if trainer.selection:
        posterior = trainer.selection.sampler.posterior
        facts |= {"num_samples": posterior.num_samples, "generation_batches": posterior.step}
        facts |= posterior.decays  # not the settings: the posterior of another rule has its own
    return facts | {
        "hardware": f"{trainer.accelerator.num_processes} x {hardware}",
        "recipe": {
            **{field: settings[field] for field in RECIPE},
            # For a run counted in epochs it is -1 in the settings, and 0 in the state before training.
            "max_steps": max(args.max_steps, trainer.state.max_steps) or None,
            "num_processes": trainer.accelerator.num_processes,
        },
    }
