"""Variants of questions (DIVA-GRPO, arXiv 2603.01106) in a run: settings, rows and advantages.

TRL sends a group to vLLM as one prompt with G completions, so that each variant is a group of its own. A problem is
its original and N matched variants: 1 + N groups, side by side in a generation batch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from trl import GRPOConfig

from trl_vade.data.variant_rows import ORIGINAL, originals_of, read_variants, with_variants_as_rows
from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.samplers.problems import MATCHES
from trl_vade.samplers.registry import PEER_SAMPLERS
from trl_vade.samplers.variants import VariantRows
from trl_vade.selection.advantages import ADVANTAGES, problem_advantages
from trl_vade.selection.outcomes import in_groups, total_rewards

from .presets import setting

logger = get_logger(__name__)

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


def check_variants(args: GRPOConfig) -> None:
    """Raise `ConfigurationError` for settings of variants that cannot work."""
    _check_values(args)
    changed = [name for name, default in NEEDS_VARIANTS.items() if setting(args, name) != default]
    if args.vade_variants is None:
        changed += ["prior"] if args.vade_prior == "variants" else []
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


def _check_values(args: GRPOConfig) -> None:
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


def _check_pairs(args: GRPOConfig) -> None:
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
    if args.vade_sampler in PEER_SAMPLERS:
        raise ConfigurationError(
            f"vade_sampler={args.vade_sampler!r} with {pairs}: its rule chooses single rows. Set vade_variant_groups="
            "0, or vade_sampler to 'thompson', 'greedy' or 'uniform'."
        )
    if args.vade_advantage == "local":
        return
    for name, only in {"scale_rewards": "group", "multi_objective_aggregation": "sum_then_normalize"}.items():
        if getattr(args, name) != only:
            raise ConfigurationError(
                f"vade_advantage={args.vade_advantage!r} with {name}={getattr(args, name)!r}: the rewards of a "
                f"problem are summed and scaled by its own spread. Set {name}={only!r}, or vade_advantage='local'."
            )


def _refuse(args: GRPOConfig, name: str, problem: str) -> None:
    raise ConfigurationError(f"vade_{name}={abbreviated(setting(args, name))} {problem}")


def _named(args: GRPOConfig, names: list[str]) -> str:
    return ", ".join(f"vade_{name}={abbreviated(setting(args, name))}" for name in names)


def lay_out_variants(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Make a row of each variant in `arguments["train_dataset"]`, and leave variants out of `eval_dataset`.

    Raises:
        ConfigurationError: the rows are a stream or come from an environment, or do not describe variants.
    """
    if args.vade_variants is None:
        return
    rows = arguments["train_dataset"]
    if not isinstance(rows, Dataset) or arguments.get("environment_factory") is not None:
        reason = "an environment" if isinstance(rows, Dataset) else f"a train_dataset of type {type(rows).__name__}"
        raise ConfigurationError(
            f"vade_variants={args.vade_variants!r} with {reason}. Variants are rows of a datasets.Dataset, whose "
            "prompts are known before training. Pass such a train_dataset, or set vade_variants=None."
        )
    arguments["train_dataset"] = with_variants_as_rows(rows, args.vade_variants)
    column, evaluated = variants_column(arguments["train_dataset"], args), arguments.get("eval_dataset")
    if isinstance(evaluated, Mapping):
        arguments["eval_dataset"] = {name: _originals(part, column) for name, part in evaluated.items()}
    elif evaluated is not None:
        arguments["eval_dataset"] = _originals(evaluated, column)


def _originals(rows: Any, column: str) -> Any:
    kept = originals_of(rows, column) if isinstance(rows, Dataset) else rows
    if kept is not rows:
        logger.warning(f"eval_dataset: {len(rows) - len(kept)} of {len(rows)} rows are variants and are left out.")
    return kept


def variants_column(rows: Dataset, args: GRPOConfig) -> str:
    """Return the column that names the original of each row, in rows of `lay_out_variants`."""
    return args.vade_variants if args.vade_variants in rows.column_names else "of"


def variant_rows(rows: Dataset, args: GRPOConfig) -> VariantRows | None:
    """Return the variants among the rows of `lay_out_variants`, or None without `vade_variants`.

    Raises:
        ConfigurationError: the rows do not fit together, or too few problems have enough variants.
    """
    if args.vade_variants is None:
        return None
    of, labels = read_variants(rows, variants_column(rows, args))
    kinds = [ORIGINAL, *sorted({*labels} - {ORIGINAL})]
    number = {kind: place for place, kind in enumerate(kinds)}
    variants = VariantRows(of, np.array([number[label] for label in labels], dtype=np.int64), tuple(kinds))
    count = variants.num_variants[variants.kind == 0]
    enough = int((count >= args.vade_variant_groups).sum())
    wanted = args.generation_batch_size // args.num_generations // (1 + args.vade_variant_groups)
    if args.vade_variant_groups and enough < wanted:
        raise ConfigurationError(
            f"A generation batch takes {wanted} problems with vade_variant_groups={args.vade_variant_groups} variants "
            f"each, but {enough} of the {len(count)} originals have as many. Add variants, or lower "
            "vade_variant_groups or generation_batch_size."
        )
    if args.vade_variant_groups and enough < len(count):
        logger.warning(
            f"{len(count) - enough} of {len(count)} problems have fewer than vade_variant_groups="
            f"{args.vade_variant_groups} variants. They are never chosen. Add variants of these, or set "
            "vade_variant_groups=0 to choose each row by itself."
        )
    return variants


def difficulty_weight(args: GRPOConfig) -> float | None:
    """Return the weight of difficulty in the advantages, or None if they have none."""
    return args.vade_difficulty_weight if args.vade_advantage == "diva" else None


def own_advantages(trainer: Any, rewards: torch.Tensor) -> NDArray[np.float64] | None:
    """Return the advantages, (K*G,), of the batch scored last in place of TRL's, or None if `vade_advantage` is local.

    `rewards` are those of all processes, (K*G, F), NaN where a reward function returned None.
    """
    args = trainer.args
    if args.vade_advantage == "local":
        return None
    in_flight, _ = trainer.selection.feedback.rounds[-1]
    weights = trainer.reward_weights.double().cpu().numpy()
    totals = total_rewards(in_groups(rewards.double().cpu().numpy(), in_flight.sample_index), weights)
    together = (-1, 1 + args.vade_variant_groups)
    return problem_advantages(
        args.vade_advantage,
        totals.reshape(*together, totals.shape[1]),
        in_flight.posterior_mean.reshape(together),
        weight=args.vade_difficulty_weight,
        max_reward=args.vade_max_reward,
    ).ravel()


def replace_advantages(trainer: Any, batch: dict[str, Any], own: NDArray[np.float64] | None) -> None:
    """Put this process's part of the own advantages into a batch of TRL, and all into its table of completions.

    `own` is None if the batch was not scored while it was prepared: a subclass or a rollout function may change it.
    """
    own = own_advantages(trainer, trainer._raw_rewards) if own is None else own
    if own is None:
        return
    size = len(batch["advantages"])
    mine = own[trainer.accelerator.process_index * size :][:size]
    batch["advantages"] = torch.as_tensor(mine).to(batch["advantages"])
    logged = trainer._logs["advantages"]
    for _ in own:
        logged.pop()
    logged.extend(own.tolist())
