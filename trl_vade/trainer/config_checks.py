"""Do the settings of a run fit together? Asked when the configuration is made, and again when the trainer is.

`trl_vade.settings` asks whether each value is allowed, `seams` whether the libraries are, `preflight` about the data.
"""

import os
from contextlib import suppress
from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.own import check_sampler
from trl_vade.settings import check_settings

from .down_sampling import down_sampling, reason_against_lossless, refuse_lossless
from .presets import POSTERIOR_INITS, column_of, is_adaptive, is_own, setting


def validate(args: Any, config: type) -> None:
    """Check the settings of `args` by the fields of `config`, and then together with those of TRL.

    Raises:
        ConfigurationError: A setting cannot work. The message names the value, the rule and what to set.
    """
    check_own_settings(args, config)
    if getattr(args, "hub_token", None) is not None:
        raise ConfigurationError(
            "hub_token is set. The Trainer writes it in clear into training_args.bin, also of each checkpoint: all "
            "who get a copy can read it. Set the environment variable HF_TOKEN or run `hf auth login` instead."
        )
    if args.use_vllm and args.vllm_mode == "colocate" and "seed" in (args.generation_kwargs or {}):
        raise ConfigurationError(
            f"generation_kwargs has seed={abbreviated(args.generation_kwargs['seed'])} with vllm_mode='colocate': a "
            "prompt that comes again would get the same answers, however the policy changed. Remove it; `seed` seeds "
            "the run."
        )
    refuse_lossless(args, reason_against_lossless(args))
    if args.vade_variants is not None:
        _check_variants(args)
    if args.vade_replay:
        _check_replay(args)


def check_own_settings(args: Any, config: type) -> None:
    """Check the settings of VADE, which need no others. `vade_success_threshold` may come as a text."""
    if isinstance(args.vade_success_threshold, str):
        args.vade_success_threshold = _threshold_of(args.vade_success_threshold)
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


def _threshold_of(text: str) -> float | str | None:
    """Return the threshold that a flag or a recipe gives as a text."""
    word = text.lower()
    with suppress(ValueError):
        return float(word)
    return None if word in ("none", "null") else word


def _check_variants(args: Any) -> None:
    pairs = f"vade_variants={args.vade_variants!r} and vade_variant_groups={args.vade_variant_groups}"
    groups, together = args.generation_batch_size // args.num_generations, 1 + args.vade_variant_groups
    if not args.vade_variant_groups:
        if (args.vade_variant_match, args.vade_advantage) != ("posterior", "local"):
            raise ConfigurationError(
                f"{pairs} with vade_variant_match={args.vade_variant_match!r} and vade_advantage="
                f"{args.vade_advantage!r}: each row is chosen by itself, so that no group has variants beside it. Set "
                "vade_variant_groups=1, or leave both out."
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
            "and a group would be in it twice. Set steps_per_generation to gradient_accumulation_steps, or "
            "vade_replay=0."
        )
