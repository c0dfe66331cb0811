"""A check, in the first batch, that the engine's log-probabilities are those of the trained policy."""

from typing import Any

import torch
from accelerate.logging import get_logger
from packaging.version import Version
from trl import GRPOConfig

logger = get_logger(__name__)

USUAL = "A usual mean is 1e-6 to 1e-5 in float32 and about 1e-2 in bf16; single tokens are far above."
MOST_EXACT, MOST = 1e-3, 5e-2
"""Largest accepted mean differences: with trainer and engine in float32, and in any other case."""


def compare_first_logprobs(trainer: Any, batch: dict[str, Any]) -> None:
    """Log once how much the engine's and the trainer's log-probabilities differ in training; warn if too much.

    TRL 1.16 logs the difference at every step without a judgement, and counts a token without a log-probability as no
    difference.
    """
    if trainer._logprobs_compared or not trainer.model.training or "importance_sampling_ratio" not in batch:
        return
    trainer._logprobs_compared = True
    sampled = batch["sampling_per_token_logps"][batch["completion_mask"].bool()]
    mean, largest = (
        trainer._metrics["train"][f"sampling/sampling_logp_difference/{name}"][-1] for name in ("mean", "max")
    )
    found = (
        f"The engine's log-probabilities of the first batch differ from the trainer's by {mean:.1e} on average and "
        f"{largest:.1e} at most. {USUAL}"
    )
    if sampled.isnan().any():
        logger.warning(
            f"The engine gave no log-probability (NaN) for {sampled.isnan().float().mean():.0%} of the tokens of the "
            "first batch. TRL sets their importance ratio to 1, so they are not corrected. The engine's logits are "
            "NaN: look for weights that did not arrive, or float16 where bfloat16 is needed."
        )
    elif mean <= (MOST_EXACT if _all_float32(trainer) else MOST):
        logger.info(found)
    else:
        logger.warning(
            f"{found} The policy that answers is not the policy that is trained. Likely causes: another processor or "
            "picture size in the engine, a server without --logprobs-mode processed_logprobs, weights that did not "
            "reach the engine, another model on the server, or top_p, top_k or min_p under TRL 1.16."
        )


def _all_float32(trainer: Any) -> bool:
    if trainer.vllm_mode != "colocate" or trainer.args.bf16 or trainer.args.fp16:
        return False
    return trainer.model.dtype == trainer.vllm_generation.llm.llm_engine.model_config.dtype == torch.float32


def scaled_ratios_notice(args: GRPOConfig, trl_version: str) -> str | None:
    """Return a warning if TRL's importance ratios will all be too small, or None.

    Before TRL 1.17 the engine normalises its log-probabilities over the tokens that top_p, top_k and min_p keep, and
    the trainer over all tokens (huggingface/trl#6789).
    """
    if not (args.use_vllm and args.vllm_importance_sampling_correction) or Version(trl_version) >= Version("1.17"):
        return None
    off = {"top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0)}
    asked = {name: getattr(args, name) for name in off} | (args.generation_kwargs or {})
    cutting = ", ".join(f"{name}={asked[name]}" for name, values in off.items() if asked[name] not in values)
    if not cutting:
        return None
    return (
        f"{cutting} with vLLM and TRL {trl_version}: the engine normalises its log-probabilities over the tokens that "
        "these keep, the trainer over all tokens. Every importance ratio is multiplied by the probability that is "
        "kept (huggingface/trl#6789, fixed in 1.17). Set top_p=1.0, top_k=0 and min_p=None, or "
        "vllm_importance_sampling_correction=False."
    )
