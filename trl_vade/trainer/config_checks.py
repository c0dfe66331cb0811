"""Do the settings of a run fit together? Asked when the configuration is made, and again when the trainer is.

`trl_vade.settings` asks whether each value is allowed, `seams` whether the libraries are, `preflight` about the data.
"""

import os
from contextlib import suppress
from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.own import check_sampler
from trl_vade.settings import as_pair, check_settings

from .presets import POSTERIOR_INITS, column_of, is_adaptive, is_own, setting
from .seams import lacking


def validate(args: Any, config: type) -> None:
    """Check the settings of `args` by the fields of `config`, and with those of TRL, or raise `ConfigurationError`."""
    check_own_settings(args, config)
    if getattr(args, "hub_token", None) is not None:
        raise ConfigurationError(
            "hub_token is set. The Trainer writes it in clear into training_args.bin, also of each checkpoint: all "
            "who get a copy can read it. Set the environment variable HF_TOKEN or run `hf auth login` instead."
        )
    if args.use_vllm and args.vllm_mode == "colocate" and "seed" in (args.generation_kwargs or {}):
        raise ConfigurationError(
            f"generation_kwargs has seed={abbreviated(args.generation_kwargs['seed'])} with vllm_mode='colocate': a "
            "prompt that comes again would get the same answers. Remove it; `seed` seeds the run."
        )
    refuse_lossless(args, reason_against_lossless(args))
    if args.vade_variants is not None:
        _check_variants(args)
    if args.vade_replay:
        _check_replay(args)


def check_own_settings(args: Any, config: type) -> None:
    """Check the settings of VADE, which need no others. `vade_success_threshold` may come as a text."""
    if isinstance(args.vade_success_threshold, str):
        word = args.vade_success_threshold.lower()
        args.vade_success_threshold = None if word in ("none", "null") else word
        with suppress(ValueError):
            args.vade_success_threshold = float(word)
    check_settings(args, config)
    check_sampler(args.vade_sampler)
    init = setting(args, "posterior_init")
    if not (init in POSTERIOR_INITS or "/" in init or column_of(args) or os.path.exists(init)):
        raise ConfigurationError(
            f"vade_posterior_init={abbreviated(init)} is not known. Set it to one of {', '.join(POSTERIOR_INITS)}, or "
            "to 'column:NAME' for a column of pass rates, or to the posterior of another run: 'user/repo' or "
            "'user/repo@revision' on the Hub, or an existing folder."
        )
    sampler = setting(args, "sampler")
    counts = init == "prior" or (init == "rollout" and is_adaptive(args))  # rollouts teach a sampler of one's own
    given = {"posterior_init": (None if counts else init, "'prior'"), "stratify_by": (args.vade_stratify_by, "None")}
    for name, (value, off) in given.items():
        if value is not None and sampler not in ("thompson", "greedy"):
            raise ConfigurationError(
                f"vade_{name}={abbreviated(value)} with vade_sampler={sampler!r}, which takes every row once an epoch "
                f"or has a rule of its own. Set vade_{name}={off}, or vade_sampler='thompson' or 'greedy'."
            )


def _check_variants(args: Any) -> None:
    pairs = f"vade_variants={args.vade_variants!r} and vade_variant_groups={args.vade_variant_groups}"
    groups, together = args.generation_batch_size // args.num_generations, 1 + args.vade_variant_groups
    if not args.vade_variant_groups:
        if (args.vade_variant_match, args.vade_advantage) != ("posterior", "local"):
            raise ConfigurationError(
                f"{pairs} with vade_variant_match={args.vade_variant_match!r} and vade_advantage="
                f"{args.vade_advantage!r}: no group has variants beside it. Set vade_variant_groups=1, or neither."
            )
        return
    if groups % together:
        raise ConfigurationError(
            f"{pairs}: a problem takes {together} groups, but a generation batch has {groups} "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}). Set "
            f"generation_batch_size to a multiple of {together * args.num_generations}, by "
            "per_device_train_batch_size, steps_per_generation or gradient_accumulation_steps."
        )
    if args.vade_dynamic_sampling:
        raise ConfigurationError(
            f"vade_dynamic_sampling=True with {pairs}: a refill replaces single groups, and would part variants from "
            "their original. Set vade_dynamic_sampling=False, or vade_variant_groups=0."
        )
    if is_own(args):
        raise ConfigurationError(
            f"vade_sampler={setting(args, 'sampler')!r} with {pairs}: its rule chooses single rows. Set "
            "vade_variant_groups=0, or vade_sampler to 'thompson', 'greedy' or 'uniform'."
        )
    for name, only in {"scale_rewards": "group", "multi_objective_aggregation": "sum_then_normalize"}.items():
        if args.vade_advantage != "local" and getattr(args, name) != only:
            raise ConfigurationError(
                f"vade_advantage={args.vade_advantage!r} with {name}={getattr(args, name)!r}: the rewards of a "
                f"problem are summed and scaled by its own spread. Set {name}={only!r}, or vade_advantage='local'."
            )


def _check_replay(args: Any) -> None:
    if (mode := down_sampling(args)) not in ("lossless", "live"):
        raise ConfigurationError(
            f"vade_replay={args.vade_replay} with vade_down_sampling={args.vade_down_sampling!r}, which is {mode!r} "
            "here: groups are trained on again in the places of rows that are left out. Set vade_down_sampling='live' "
            "or, where it is allowed, 'lossless'. Or set vade_replay=0."
        )
    rows, size = args.per_device_train_batch_size * args.steps_per_generation, args.num_generations
    if rows % size:
        raise ConfigurationError(
            f"vade_replay={args.vade_replay}, and a process has {rows} completions of a generation batch "
            f"(per_device_train_batch_size x steps_per_generation), no multiple of num_generations={size}: a group "
            "would be on two processes. Set per_device_train_batch_size to such a number, or vade_replay=0."
        )
    if args.gradient_accumulation_steps > args.steps_per_generation * args.num_iterations:
        raise ConfigurationError(
            f"vade_replay={args.vade_replay} with gradient_accumulation_steps={args.gradient_accumulation_steps} and "
            f"steps_per_generation={args.steps_per_generation}: an optimiser step takes several generation batches, "
            "and may have a group twice. Set steps_per_generation to gradient_accumulation_steps, or vade_replay=0."
        )


SCHEDULES = {"vade_keep_rollouts": (0.25, 1.0), "vade_keep_tokens": (0.2, 1.0)}
"""By setting, the shares at the first and the last step where it is None. D3S names no numbers."""


def down_sampling(args: Any) -> str:
    """Return `vade_down_sampling`. None means "lossless" if that is exact and the sampler adaptive, else "none"."""
    off = reason_against_lossless(args) or lacking("vade_down_sampling") or not is_adaptive(args)
    automatic = "none" if off else "lossless"
    return str(args.vade_down_sampling or automatic)


def schedule(args: Any, name: str) -> tuple[float, float]:
    """Return the shares at the first and at the last step that the setting `name` asks for."""
    value = getattr(args, name)
    return SCHEDULES[name] if value is None else as_pair(value)


def reason_against_lossless(args: Any) -> str | None:
    """Return why rows without an advantage change the weights under these settings of TRL 1.16, or None."""
    if args.beta != 0:
        return f"beta={args.beta}: rows without an advantage have a KL term"
    if reason := _of_micro_batch(args):
        return reason
    if args.gradient_accumulation_steps % args.steps_per_generation:
        return (
            f"steps_per_generation={args.steps_per_generation} does not divide gradient_accumulation_steps="
            f"{args.gradient_accumulation_steps}, so rows would fall into other optimiser steps"
        )
    return None


def _of_micro_batch(args: Any) -> str | None:
    """Return what depends on all rows of a micro-batch, or None."""
    if args.entropy_coef != 0 or args.use_adaptive_entropy:
        return "the entropy bonus (entropy_coef, use_adaptive_entropy) acts on rows without an advantage"
    if args.top_entropy_quantile < 1:
        return f"top_entropy_quantile={args.top_entropy_quantile} is a quantile of the tokens of all rows"
    if args.loss_type == "bnpo":
        return "loss_type='bnpo' divides by the tokens of all rows of a micro-batch"
    return None


def order_is_free(args: Any) -> bool:
    """Return whether neither who shares a micro-batch in TRL 1.16, nor what a step takes, changes the update."""
    per_step, per_batch = args.gradient_accumulation_steps, args.steps_per_generation
    whole = per_step % per_batch == 0 or per_batch % per_step == 0  # else a step takes parts of generation batches
    # D3S chooses tokens within each micro-batch.
    return whole and not _of_micro_batch(args) and args.vade_down_sampling != "d3s"


def refuse_lossless(args: Any, reason: str | None) -> None:
    """Raise `ConfigurationError` if "lossless" was asked for and there is a `reason` against it."""
    if reason and args.vade_down_sampling == "lossless":
        raise ConfigurationError(
            f"vade_down_sampling='lossless', but {reason}. Training without these rows would give other weights. Set "
            "vade_down_sampling='live' to leave them out nevertheless, or 'none' to train on every row."
        )
