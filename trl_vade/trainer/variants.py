"""Variants of questions (DIVA-GRPO, arXiv 2603.01106) in a run: settings, rows and advantages.

TRL sends a group to vLLM as one prompt with G completions, so that each variant is a group of its own. A problem is
its original and N matched variants: 1 + N groups, side by side in a generation batch. Its local advantages compare the
completions of a variant, its global ones all completions of the problem (sections 3.3 and 3.4).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from trl import GRPOConfig

from trl_vade.data.variants import originals_of, read_variants, with_known_originals
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.problems import ORIGINAL, VariantRows
from trl_vade.selection.outcomes import in_groups, total_rewards

logger = get_logger(__name__)


def lay_out_variants(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Leave variants without an original out of `arguments["train_dataset"]`, and all out of `eval_dataset`."""
    if args.vade_variants is None:
        return
    column, evaluated = args.vade_variants, arguments.get("eval_dataset")
    arguments["train_dataset"] = with_known_originals(arguments["train_dataset"], column)
    if isinstance(evaluated, Mapping):
        arguments["eval_dataset"] = {name: originals_of(part, column) for name, part in evaluated.items()}
    elif evaluated is not None:
        arguments["eval_dataset"] = originals_of(evaluated, column)


def variant_rows(rows: Dataset, args: GRPOConfig) -> VariantRows | None:
    """Return the variants among the rows of `lay_out_variants`, or None without `vade_variants`.

    Rows that do not fit together, and too few problems with enough variants, are a `ConfigurationError`.
    """
    if args.vade_variants is None:
        return None
    of, labels = read_variants(rows, args.vade_variants)
    kinds, groups = [ORIGINAL, *sorted({*labels} - {ORIGINAL})], args.vade_variant_groups
    number = {kind: place for place, kind in enumerate(kinds)}
    variants = VariantRows(of, np.array([number[label] for label in labels], dtype=np.int64), tuple(kinds))
    count = variants.num_variants[variants.kind == 0]
    few = f"{np.count_nonzero(count < groups)} of {len(count)} problems have fewer than vade_variant_groups={groups}"
    wanted = args.generation_batch_size // args.num_generations // (1 + groups)
    if groups and np.count_nonzero(count >= groups) < wanted:
        raise ConfigurationError(
            f"{few} variants, and a generation batch takes {wanted} problems. Add variants, or lower "
            "vade_variant_groups or generation_batch_size."
        )
    if (count < groups).any():
        logger.warning(
            f"{few} variants. They are never chosen. Add variants, or set vade_variant_groups=0 to choose single rows."
        )
    return variants


def own_advantages(trainer: Any, rewards: torch.Tensor) -> NDArray[np.float64] | None:
    """Return the advantages, (K*G,), for all processes' `rewards`, (K*G, F), or None if `vade_advantage` is local."""
    args = trainer.args
    if args.vade_advantage == "local":
        return None
    in_flight, _ = trainer.selection.feedback.rounds[-1]
    weights = trainer.reward_weights.double().cpu().numpy()
    totals = total_rewards(in_groups(rewards.double().cpu().numpy(), in_flight.sample_index), weights)
    together = (-1, 1 + args.vade_variant_groups)
    return problem_advantages(
        args.vade_advantage, totals.reshape(*together, totals.shape[1]), in_flight.posterior_mean.reshape(together)
    ).ravel()


def replace_advantages(trainer: Any, batch: dict[str, Any], own: NDArray[np.float64] | None) -> None:
    """Put this process's part of the own advantages into a batch of TRL, and all into its table of completions.

    `own` is None if the batch was not scored while it was prepared: a subclass or a rollout function may change it.
    """
    if trainer.args.vade_advantage == "local":
        return
    own = own_advantages(trainer, trainer._raw_rewards) if own is None else own
    size = len(batch["advantages"])
    mine = own[trainer.accelerator.process_index * size :][:size]
    batch["advantages"] = torch.as_tensor(mine).to(batch["advantages"])
    logged = trainer._logs["advantages"]
    for _ in own:
        logged.pop()
    logged.extend(own.tolist())


EPSILON = 1e-6
DIFFICULTY_WEIGHT = 0.1  # k of DIVA-GRPO, as in the released code
LIVE = 1e-5  # the smallest advantage; TRL's rewards are float32, and rounding errors of equal ones give no advantage


def problem_advantages(kind: str, rewards: NDArray[np.float64], pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the advantages (Q, V, k) of problems of a kind: a setting `vade_advantage`.

    `rewards`, (Q, V, k), are weighted sums. NaN, a completion without a score, gets the advantage 0 and leaves no
    trace in the others. `pass_rate`, (Q, V), is the expected one before the rollouts, which gives the difficulty.
    """
    scored = ~np.isnan(rewards)
    totals = np.where(scored, np.round(rewards, 6), np.nan)
    if kind == "diva":
        values = diva_advantages(totals, posterior_difficulty(pass_rate))
    else:
        values = np.zeros(rewards.shape)
        values += standardised(totals, 2) if "local" in kind else 0.0
        values += standardised(totals, (1, 2)) if "global" in kind else 0.0
    return np.where(scored & (np.abs(values) >= LIVE), values, 0.0)


def diva_advantages(rewards: NDArray[np.float64], difficulty: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return DIVA's advantages: local plus difficulty-weighted global ones, both rescaled by the range of rewards.

    In order, as in the released code: both kinds are standardised over the batch. Positive global ones of a variant
    grow by exp(`DIFFICULTY_WEIGHT` x (its difficulty - the mean of its problem)), negative ones shrink by it. Each
    kind is multiplied by the range of its rewards.

    `rewards`, (Q, V, k), are weighted sums; one above 1 is a `ConfigurationError`. `difficulty`, (Q, V), is 1 to 9.
    """
    if (rewards > 1.0).any():
        raise ConfigurationError(
            f"A weighted sum of rewards is {np.nanmax(rewards):g} with vade_advantage='diva', which scales advantages "
            "by the range of rewards up to 1. Set reward_weights so that no sum of weighted rewards is above 1."
        )
    local, whole = (standardised(standardised(rewards, axes), None) for axes in (2, (1, 2)))
    harder = difficulty - difficulty.mean(axis=1, keepdims=True)
    whole = whole * np.exp(DIFFICULTY_WEIGHT * harder[:, :, None] * np.sign(whole))
    low, high = (np.nan_to_num(rewards, nan=fill) for fill in (np.inf, -np.inf))
    ranges = [np.maximum(high.max(axes, keepdims=True) - low.min(axes, keepdims=True), 0.0) for axes in (2, (1, 2))]
    return ranges[0] * local + ranges[1] * whole


def posterior_difficulty(pass_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difficulty from 1 (always right) to 9 (never right) of pass rates: 1 + 8(1 - p)."""
    return 1.0 + 8.0 * (1.0 - pass_rate)


def standardised(values: NDArray[np.float64], axes: int | tuple[int, ...] | None) -> NDArray[np.float64]:
    """Return the values minus their mean, over their sample standard deviation along `axes`; NaN is not counted."""
    count = np.isfinite(values).sum(axis=axes, keepdims=True)
    centred = values - np.nansum(values, axis=axes, keepdims=True) / np.maximum(count, 1)
    squares = np.nansum(centred**2, axis=axes, keepdims=True)
    return centred / (np.sqrt(squares / np.maximum(count - 1, 1)) + EPSILON)
