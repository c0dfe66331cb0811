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

from trl_vade.data.variants import originals_of, read_variants, with_known_originals
from trl_vade.errors import ConfigurationError
from trl_vade.samplers.problems import ORIGINAL, VariantRows
from trl_vade.selection.advantages import problem_advantages
from trl_vade.selection.outcomes import in_groups, total_rewards

logger = get_logger(__name__)


def lay_out_variants(arguments: dict[str, Any], args: GRPOConfig) -> None:
    """Leave variants without an original out of `arguments["train_dataset"]`, and all out of `eval_dataset`.

    Raises:
        ConfigurationError: the rows do not describe variants.
    """
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

    Raises:
        ConfigurationError: the rows do not fit together, or too few problems have enough variants.
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
            f"{few} variants. They are never chosen. Add variants of these, or set vade_variant_groups=0 to choose "
            "each row by itself."
        )
    return variants


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
