"""Corrections that vision-language generation needs under TRL, each at the smallest seam and each with its source."""

from typing import Any

# vLLM clips a logit bias to [-100, 100]; at -100 a token is as good as impossible.
VLLM_BIAS_FLOOR = -100.0


def vision_token_ids(model_config: Any) -> list[int]:
    """Ids of the placeholders that stand for image and video features in the prompt; empty for a text-only model."""
    ids = (getattr(model_config, f"{kind}_token_id", None) for kind in ("image", "video"))
    return sorted({token_id for token_id in ids if token_id is not None})


def suppress_vision_tokens(trainer: Any) -> None:
    """Make the vision placeholders impossible to generate, whichever engine `trainer` uses.

    A policy may sample one; then the number of placeholders no longer matches the image features and the training
    forward of Qwen2.5-VL dies, which real models do rarely and a whole run is lost. TRL 1.16 suppresses the image
    token with the transformers engine (`suppress_tokens`), but neither the video token nor anything with vLLM.
    Biases and suppressions that the user set for other tokens are kept.
    """
    ids = vision_token_ids(trainer.model.config)
    if not ids:
        return
    if trainer.use_vllm:
        kwargs = trainer.vllm_generation.generation_kwargs
        forbidden = dict.fromkeys(ids, VLLM_BIAS_FLOOR)
        trainer.vllm_generation.generation_kwargs = {
            **kwargs,
            "logit_bias": {**(kwargs.get("logit_bias") or {}), **forbidden},
        }
        return
    suppressed = sorted({*(trainer.generation_config.suppress_tokens or ()), *ids})
    trainer.generation_config.suppress_tokens = suppressed
    # `generation_kwargs` overwrites the model's own generation config during generation (transformers#42762).
    trainer.generation_kwargs["suppress_tokens"] = suppressed


def without_missing_images(images: list[list[Any] | None] | None) -> list[list[Any]] | None:
    """Write the images of a row that has none as `[]`, in a batch where other rows have some.

    TRL 1.16 (`_tokenize_prompts`) writes `None` there, which its engines want and the processors of transformers 5.23
    refuse when the batch is prepared for the training forward (`fetch_images`: "only a single or a list of entries is
    supported"). Their rule is an empty list (huggingface/transformers#46043). A test says when this can go.
    """
    return None if images is None else [row_images or [] for row_images in images]
