"""Whether an engine's log-probabilities are those of the policy that is trained: looked at in the first batch."""

from typing import Any

import torch
from accelerate.logging import get_logger
from packaging.version import Version
from trl import GRPOConfig

logger = get_logger(__name__)

USUAL = "Usual is a mean of 1e-6 to 1e-5 in float32 and about 1e-2 in bf16, with single tokens far above."
MOST_EXACT, MOST = 1e-3, 5e-2
"""Means of the difference from which on something is wrong: trainer and engine in float32, and in any other case."""


def compare_first_logprobs(trainer: Any, batch: dict[str, Any]) -> None:
    """Log how far the engine's log-probabilities of the first training batch are from `trainer`'s; warn if too far.

    TRL 1.16 logs the difference at every step and judges none; a token without a log-probability counts as no
    difference there.

    Args:
        trainer: whose metrics of this batch are those that TRL has just written.
        batch: what TRL's `_generate_and_score_completions` has returned.
    """
    sampled = batch["sampling_per_token_logps"][batch["completion_mask"].bool()]
    mean, largest = (
        trainer._metrics["train"][f"sampling/sampling_logp_difference/{name}"][-1] for name in ("mean", "max")
    )
    found = (
        "The engine's log-probabilities of the first batch differ from the trainer's by "
        f"{mean:.1e} in the mean and {largest:.1e} at most. {USUAL}"
    )
    if sampled.isnan().any():
        logger.warning(
            f"The engine gave no log-probability (NaN) for {sampled.isnan().float().mean():.0%} of the tokens of "
            "the first batch: TRL takes their importance ratio to be 1, so nothing is corrected there. Its logits are "
            "NaN: look for weights that did not arrive, and for float16 where bfloat16 is needed."
        )
    elif mean <= (MOST_EXACT if _all_float32(trainer) else MOST):
        logger.info(found)
    else:
        logger.warning(
            f"{found} Another policy answers than the one that is trained. Likely causes: the engine has another "
            "processor or picture size, a server without --logprobs-mode processed_logprobs, weights that did not "
            "reach the engine, another model on the server, or top_p, top_k or min_p under TRL 1.16."
        )


def _all_float32(trainer: Any) -> bool:
    if trainer.vllm_mode != "colocate" or trainer.args.bf16 or trainer.args.fp16:
        return False
    return trainer.model.dtype == trainer.vllm_generation.llm.llm_engine.model_config.dtype == torch.float32


def scaled_ratios_notice(args: GRPOConfig, trl_version: str) -> str | None:
    """What is to be said where TRL's importance ratios are all too small; None where they are right.

    Before 1.17 the engine's log-probabilities are of the tokens that top_p, top_k and min_p leave, and the trainer's
    are of all (huggingface/trl#6789).
    """
    if not (args.use_vllm and args.vllm_importance_sampling_correction) or Version(trl_version) >= Version("1.17"):
        return None
    off = {"top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0)}
    asked = {name: getattr(args, name) for name in off} | (args.generation_kwargs or {})
    cutting = ", ".join(f"{name}={asked[name]}" for name, values in off.items() if asked[name] not in values)
    if not cutting:
        return None
    return (
        f"{cutting} with vLLM and TRL {trl_version}: the engine's log-probabilities are of the tokens that are left, "
        "the trainer's of all, so every importance ratio is multiplied by the share that is left "
        "(huggingface/trl#6789, mended in 1.17). Set top_p=1.0, top_k=0 and min_p=None, or "
        "vllm_importance_sampling_correction=False."
    )
