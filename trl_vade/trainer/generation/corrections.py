"""Corrections of TRL's generation, each at the smallest seam and with its source."""

import functools
from typing import Any

import trl
from accelerate.logging import get_logger
from packaging.version import Version
from torch.distributed.fsdp import FSDPModule
from trl import GRPOConfig

from trl_vade.errors import EngineError

from ..batch_rows import has_pixels_by_row
from .colocated import correct_colocated_requests, image_token_of_qwen, refuse_other_processor_of_server

logger = get_logger(__name__)

VLLM_BIAS_FLOOR = -100.0
"""The lowest logit bias that vLLM accepts. A token with this bias is practically never sampled."""


def correct_generation(trainer: Any) -> None:
    """Apply all corrections to `trainer` and its new engine, once, and log a notice about the installed TRL."""
    if notice := scaled_ratios_notice(trainer.args, trl.__version__):
        logger.warning(notice)
    suppress_vision_tokens(trainer)
    sees = bool(vision_token_ids(trainer.model.config))
    for model in (trainer.model, trainer.ref_model) if sees else ():
        if model is not None:
            model.register_forward_pre_hook(without_empty_images, with_kwargs=True)
    if not trainer.use_vllm:
        return
    if trainer._dist.fsdp_version == 2:
        reshard_before_sync(trainer.vllm_generation)
    if sees:
        reset_vision_embeddings(trainer)
    if trainer.vllm_mode == "colocate":
        correct_colocated_requests(trainer)
    elif image_token_of_qwen(trainer.model.config) is not None:
        refuse_other_processor_of_server(trainer)


def scaled_ratios_notice(args: GRPOConfig, trl_version: str) -> str | None:
    """Return a warning if TRL's importance ratios will all be too small, or None.

    Before TRL 1.17 the engine normalises over the tokens that top_p, top_k and min_p keep (huggingface/trl#6789).
    """
    off = {"top_p": (None, 1.0), "top_k": (None, 0, -1), "min_p": (None, 0.0)}
    asked = {name: getattr(args, name) for name in off} | (args.generation_kwargs or {})
    cutting = ", ".join(f"{name}={asked[name]}" for name, values in off.items() if asked[name] not in values)
    corrects = args.use_vllm and args.vllm_importance_sampling_correction
    if not (cutting and corrects and Version(trl_version) < Version("1.17")):
        return None
    return (
        f"{cutting} with vLLM and TRL {trl_version}: importance ratios are too small (huggingface/trl#6789, fixed in "
        "1.17). Set top_p=1.0, top_k=0 and min_p=None, or vllm_importance_sampling_correction=False."
    )


def vision_token_ids(model_config: Any) -> list[int]:
    """Return the ids of the image and video placeholders of the prompt. Empty for a text-only model."""
    ids = (getattr(model_config, f"{kind}_token_id", None) for kind in ("image", "video"))
    return sorted({token_id for token_id in ids if token_id is not None})


def suppress_vision_tokens(trainer: Any) -> None:
    """Make the vision placeholders impossible to generate, with every engine, beside what the user suppresses.

    If the policy samples a placeholder, the placeholders no longer match the image features, and the training forward
    of Qwen2.5-VL fails. Real models do so rarely, but it ends the run. TRL 1.16 suppresses the image token with the
    transformers engine (`suppress_tokens`), but not the video token, and no token with vLLM.
    """
    ids = vision_token_ids(trainer.model.config)
    if not ids:
        return
    if trainer.use_vllm:
        kwargs = trainer.vllm_generation.generation_kwargs
        # Keys from a command line are strings (JSON).
        bias = {int(token): value for token, value in (kwargs.get("logit_bias") or {}).items()}
        bias |= dict.fromkeys(ids, VLLM_BIAS_FLOOR)
        trainer.vllm_generation.generation_kwargs = {**kwargs, "logit_bias": bias}
        return
    suppressed = sorted({*(trainer.generation_config.suppress_tokens or ()), *ids})
    trainer.generation_config.suppress_tokens = suppressed
    # `generation_kwargs` overwrites the model's own generation config during generation (transformers#42762).
    trainer.generation_kwargs["suppress_tokens"] = suppressed


def reset_vision_embeddings(trainer: Any) -> None:
    """Empty the engine's cache of vision embeddings after every weight sync.

    vLLM keeps them by the hash of the image. TRL 1.16 empties the prefix cache after a weight sync, but not this one
    (huggingface/trl#7198): an image that comes again would be answered with embeddings of older weights.
    """
    engine, sync_weights = trainer.vllm_generation, trainer.vllm_generation.sync_weights

    @functools.wraps(sync_weights)
    def sync_and_forget():
        sync_weights()
        if engine.mode == "colocate":
            engine.llm.llm_engine.reset_encoder_cache()
        elif trainer.accelerator.is_main_process:
            url = engine.vllm_client.base_url
            # `_post` of the client expects JSON in the answer (TRL 1.16); this answer is empty.
            answer = engine.vllm_client.session.post(f"{url}/reset_encoder_cache")
            if answer.status_code != 200:
                raise EngineError(
                    f"The vLLM server at {url} answered {answer.status_code} to /reset_encoder_cache: "
                    f"{answer.text[:200]!r}. It must drop the vision embeddings of older weights, or it would answer "
                    "with them. Start vLLM 0.31 with VLLM_SERVER_DEV_MODE=1 in its environment."
                )

    engine.sync_weights = sync_and_forget


def reshard_before_sync(engine: Any) -> None:
    """Shard the weights again before `engine`, TRL's `VLLMGeneration`, gathers them one by one (FSDP2).

    After a forward pass, torch leaves the root module's weights whole for the backward pass, which evaluations and
    initial rollouts do not have. TRL 1.16 (`_iter_fsdp2_params`) then fails: "'Tensor' object has no 'full_tensor'".
    """
    iterate = engine._iter_fsdp2_params

    @functools.wraps(iterate)
    def resharded(module):
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()
        yield from iterate(module)

    engine._iter_fsdp2_params = resharded


def without_empty_images(model: Any, positional: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Leave out the images of a forward pass that has none, as a hook before it.

    TRL 1.16 gives a micro-batch of rows without an image empty `pixel_values` if other rows of its generation batch
    have images. Qwen2.5-VL (transformers 5.23) and Idefics3, which gets blank pixels, then fail.
    """
    pixels = named.get("pixel_values")
    if pixels is None:
        return positional, named
    blank = has_pixels_by_row(named) and not named["input_ids"].eq(model.config.image_token_id).any()
    if len(pixels) and not blank:
        return positional, named
    return positional, {name: value for name, value in named.items() if not name.startswith(("pixel_", "image_"))}


def without_missing_images(output: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an output of `_generate` with `[]` in place of None for the images of rows without an image.

    Beside rows with images, TRL 1.16 (`_tokenize_prompts`) writes None for a row without one, as its engines expect.
    The processors of transformers 5.23 refuse it before the training forward (huggingface/transformers#46043).
    """
    if not (output[6:] and isinstance(output[6], list)):  # None, or another release's output
        return output
    return (*output[:6], [row_images or [] for row_images in output[6]], *output[7:])
