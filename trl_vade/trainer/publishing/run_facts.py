"""The facts of a run at one moment, for its cards, its uploads and the metadata of a shared posterior."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from huggingface_hub import model_info
from numpy.typing import NDArray

from trl_vade.files import FORMAT_VERSION
from trl_vade.hub.failures import HTTP_ERROR
from trl_vade.hub.posteriors.facts import named_dataset
from trl_vade.hub.uploading import hub_id, is_hub_id
from trl_vade.samplers.information import SPREAD_GAIN
from trl_vade.version import __version__

from ..checkpoint.posterior import posterior_identity
from ..grpo_config import settings_in_use
from ..initial_posterior import initial_posterior_facts

logger = get_logger(__name__)

RECIPE = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "generation_batch_size", "num_iterations"),
    *("beta", "loss_type", "epsilon", "epsilon_high", "scale_rewards"),
    *("max_completion_length", "use_vllm", "vllm_mode", "bf16"),
)
"""Fields of the settings that describe the recipe. `num_processes` is added."""


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run at one moment: everything that cards and uploads need from the trainer."""

    # strict JSON, the metadata of a shared posterior; an unknown fact is None. Without a selection the facts of
    # `_posterior_facts` are absent. Settings have the preset's values, and are None for a sampler that ignores them.
    values: Mapping[str, Any]
    hub_model_id: str | None  # the model's repository, or None
    vision: bool  # whether the model takes images
    adapter: bool  # whether the run saves a PEFT adapter of the base model
    rows: Any  # the training set, N rows
    sample_keys: NDArray[np.int64] | None  # (N,) keys of the rows; None without a selection

    @classmethod
    def of(cls, trainer: Any, dataset: str | None = None) -> "RunFacts":
        """Return the present facts of a `VADEGRPOTrainer`'s run. No process waits for another.

        `dataset` is what the caller calls the training data, in place of `trainer.dataset_name`.
        """
        return cls(
            values=_values(trainer, dataset),
            hub_model_id=trainer.hub_model_id,
            vision=getattr(trainer.model.config, "vision_config", None) is not None,
            adapter=hasattr(trainer.model, "peft_config"),
            rows=trainer.train_dataset,
            sample_keys=trainer.selection and trainer.selection.sample_keys[0],
        )


def _values(trainer: Any, dataset: str | None) -> dict[str, Any]:
    args, settings = trainer.args, trainer.args.to_dict()  # the latter without members of an Enum
    base_model = hub_id(getattr(trainer.model.config, "_name_or_path", None))  # as in TRL's card
    device = trainer.accelerator.device
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    model_repo = trainer.hub_model_id or args.hub_model_id  # without its owner until the repository exists
    return {
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "global_step": trainer.state.global_step,
        "base_model": base_model,
        "license": licence_of(base_model) if args.push_to_hub else None,
        "hardware": f"{trainer.accelerator.num_processes} x {hardware}",
        "model_repo": model_repo if is_hub_id(model_repo) and "/" in model_repo else None,
        **named_dataset(dataset or trainer.dataset_name),
        "num_generations": trainer.num_generations,
        "temperature": args.temperature,
        "rewards": list(trainer.reward_func_names),
        "seed": args.seed,
        **settings_in_use(args),
        **initial_posterior_facts(args),
        **(_posterior_facts(trainer) if trainer.selection else {}),
        "recipe": {
            **{field: settings[field] for field in RECIPE},
            # For a run counted in epochs it is -1 in the settings, and 0 in the state before training.
            "max_steps": max(args.max_steps, trainer.state.max_steps) or None,
            "num_processes": trainer.accelerator.num_processes,
        },
    }


@functools.cache
def licence_of(base_model: str | None) -> Mapping[str, str]:
    """Return `license` as the card of a model's repository has it; empty if it is not known.

    A derived model is under the licence of its base, unless the owner's card names another. A licence that is not on
    the Hub's list, `other`, comes with `license_name` and `license_link`, as the Hub asks for.
    """
    try:
        data = model_info(base_model, timeout=10.0).card_data if base_model else None
    except (HTTP_ERROR, OSError, ValueError):  # a card is not worth an error: the owner can add the licence
        data = None
    keys = ("license", "license_name", "license_link")
    found = {key: data[key] for key in keys if data and isinstance(data.get(key), str)}
    if found.get("license") != "other":
        return {"license": found["license"]} if "license" in found else {}
    if len(found) == len(keys) and "://" not in found["license_link"]:  # a file in the base model's repository
        found["license_link"] = f"https://huggingface.co/{base_model}/blob/main/{found['license_link']}"
    return found if len(found) == len(keys) else {}


def _posterior_facts(trainer: Any) -> dict[str, Any]:
    posterior = trainer.selection.sampler.posterior
    return {
        **posterior_identity(trainer),
        **({"information_gain": SPREAD_GAIN} if trainer.selection.feedback.signal.is_spread else {}),
        "num_samples": posterior.num_samples,
        "generation_batches": posterior.step,  # with refills and a warm start
        "rollouts": trainer.selection.feedback.rollouts,
        **posterior.decays,  # not the settings: the posterior of another rule has its own
    }
