"""Checks of the settings of variants, of their values alone."""

from typing import Any

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.problems import MATCHES
from trl_vade.selection.advantages import ADVANTAGES

from .presets import is_own, setting

MOST_GROUPS = 100
NEEDS_VARIANTS = {
    "variant_groups": 1,
    "variant_match": "posterior",
    "advantage": "local",
    "difficulty_weight": 0.1,
    "max_reward": 1.0,
}
"""The settings that only `vade_variants` uses, with their defaults."""
OF_DIVA = ("difficulty_weight", "max_reward")


def check_variants(args: Any) -> None:
    """Raise `ConfigurationError` for settings of variants that cannot work."""
    _check_values(args)
    changed = [name for name, default in NEEDS_VARIANTS.items() if setting(args, name) != default]
    if args.vade_variants is None:
        if changed:
            raise ConfigurationError(
                f"{_named(args, changed)} without vade_variants. Only rows with variants use it. Set vade_variants to "
                "the column that ties variants to their originals, or leave this setting out."
            )
        return
    if args.vade_advantage != "diva" and any(name in changed for name in OF_DIVA):
        raise ConfigurationError(
            f"{_named(args, [name for name in changed if name in OF_DIVA])} with vade_advantage="
            f"{args.vade_advantage!r}, which does not use it. Set vade_advantage='diva', or leave this setting out."
        )
    if args.vade_variant_groups:
        _check_pairs(args)
    elif pairs_only := [name for name in ("variant_match", "advantage") if name in changed]:
        raise ConfigurationError(
            f"vade_variant_groups=0 with {_named(args, pairs_only)}: each row is chosen by itself, so that no group "
            "has variants beside it. Set vade_variant_groups=1, or leave this setting out."
        )


def _check_values(args: Any) -> None:
    for name, known in {"variant_match": MATCHES, "advantage": ADVANTAGES}.items():
        value = setting(args, name)
        if not isinstance(value, str) or value not in known:
            _refuse(args, name, f"is not known. Set it to one of {', '.join(known)}.")
    groups = args.vade_variant_groups
    if not isinstance(groups, int) or isinstance(groups, bool) or not 0 <= groups <= MOST_GROUPS:
        _refuse(
            args,
            "variant_groups",
            f"is not a whole number from 0 to {MOST_GROUPS}. It is the number of variants beside each original. Set "
            "1, or 0 to choose each row by itself.",
        )
    for name in OF_DIVA:
        value = setting(args, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1e6 or (value == 0 and name == "max_reward"):
            allowed = "above 0" if name == "max_reward" else "of at least 0"
            _refuse(args, name, f"is not a number {allowed}, up to 1e6. The default is {NEEDS_VARIANTS[name]}.")


def _check_pairs(args: Any) -> None:
    """Refuse settings that cannot work with groups of variants beside each original."""
    groups, together = args.generation_batch_size // args.num_generations, 1 + args.vade_variant_groups
    pairs = f"vade_variants={args.vade_variants!r} and vade_variant_groups={args.vade_variant_groups}"
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
    if args.vade_advantage == "local":
        return
    for name, only in {"scale_rewards": "group", "multi_objective_aggregation": "sum_then_normalize"}.items():
        if getattr(args, name) != only:
            raise ConfigurationError(
                f"vade_advantage={args.vade_advantage!r} with {name}={getattr(args, name)!r}: the rewards of a "
                f"problem are summed and scaled by its own spread. Set {name}={only!r}, or vade_advantage='local'."
            )


def _refuse(args: Any, name: str, problem: str) -> None:
    raise ConfigurationError(f"vade_{name}={abbreviated(setting(args, name))} {problem}")


def _named(args: Any, names: list[str]) -> str:
    return ", ".join(f"vade_{name}={abbreviated(setting(args, name))}" for name in names)
