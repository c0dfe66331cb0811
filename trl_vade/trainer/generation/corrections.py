"""Corrections that generation needs under TRL, each at the smallest seam and each with its source."""

import functools
from dataclasses import dataclass
from typing import Any

import trl
from accelerate.logging import get_logger
from packaging.specifiers import SpecifierSet
from torch.distributed.fsdp import FSDPModule

from trl_vade.errors import EngineError

from .colocated import correct_colocated_requests, image_token_of_qwen
from .engine_processor import refuse_other_processor_of_server
from .logprobs import scaled_ratios_notice
from .request_seeds import seed_server_requests

logger = get_logger(__name__)


# vLLM clips a logit bias to [-100, 100]; at -100 a token is as good as impossible.
VLLM_BIAS_FLOOR = -100.0


@dataclass(frozen=True)
class Correction:
    """A fault of TRL that is put right here."""

    fault: str
    source: str  # where it is reported, or seen
    needed_by: str  # the TRL versions in which a test has seen it


CORRECTIONS = (
    Correction("image tokens are expanded twice in colocate mode", "huggingface/trl#6294, #6401", ">=1.16,<1.17"),
    Correction("vision embeddings outlive a weight sync", "huggingface/trl#7198", ">=1.16,<1.17"),
    Correction("vision placeholders can be generated", "grpo_trainer.py: only suppress_tokens", ">=1.16,<1.17"),
    Correction(
        "a colocated engine has the model folder's processor", "vllm_generation.py: _init_vllm", ">=1.16,<1.17"
    ),
    Correction(
        "a server with another processor is not noticed", "vllm_generation.py: _place_features", ">=1.16,<1.17"
    ),
    Correction("a colocated prompt is sent once for each completion", "vllm_generation.py: n = 1", ">=1.16,<1.17"),
    Correction("weights that a forward pass left whole are not synced", "vllm_generation.py, FSDP2", ">=1.16,<1.17"),
    Correction(
        "a row without images is None where others have some", "huggingface/transformers#46043", ">=1.16,<1.17"
    ),
)


def correct_generation(trainer: Any) -> None:
    """Put right what `trainer`'s engine would do wrong; called once, when TRL has made the engine."""
    if notice := version_notice(trl.__version__):
        logger.warning(notice)
    if notice := scaled_ratios_notice(trainer.args, trl.__version__):
        logger.warning(notice)
    suppress_vision_tokens(trainer)
    if not trainer.use_vllm:
        return
    if trainer._dist.fsdp_version == 2:
        reshard_before_sync(trainer.vllm_generation)
    if vision_token_ids(trainer.model.config):
        reset_vision_embeddings(trainer)
    if trainer.vllm_mode == "colocate":
        correct_colocated_requests(trainer)
        return
    seed_server_requests(trainer)
    if image_token_of_qwen(trainer.model.config) is not None:
        refuse_other_processor_of_server(trainer)


def version_notice(trl_version: str) -> str | None:
    """What is to be said under this TRL: which corrections nobody has seen to be needed; None where all were."""
    unseen = [each for each in CORRECTIONS if not SpecifierSet(each.needed_by).contains(trl_version, prereleases=True)]
    if not unseen:
        return None
    faults = "; ".join(f"{each.fault} ({each.source}; seen in TRL {each.needed_by})" for each in unseen)
    return (
        f"TRL {trl_version} is none of the versions for which trl_vade has corrected generation: {faults}. The "
        "corrections stay on, and change nothing where TRL no longer needs them. `pytest -m vllm` in trl_vade's "
        "repository has a test for each that fails when it can go."
    )


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
        # From a command line the users' keys are strings (JSON).
        bias = {int(token): value for token, value in (kwargs.get("logit_bias") or {}).items()}
        bias |= dict.fromkeys(ids, VLLM_BIAS_FLOOR)
        trainer.vllm_generation.generation_kwargs = {**kwargs, "logit_bias": bias}
        return
    suppressed = sorted({*(trainer.generation_config.suppress_tokens or ()), *ids})
    trainer.generation_config.suppress_tokens = suppressed
    # `generation_kwargs` overwrites the model's own generation config during generation (transformers#42762).
    trainer.generation_kwargs["suppress_tokens"] = suppressed


def reset_vision_embeddings(trainer: Any) -> None:
    """Make the engine forget what the vision tower made of its images whenever it gets new weights.

    vLLM keeps vision embeddings by the hash of the image. TRL 1.16 empties its prefix cache after a weight sync, and
    not this one (huggingface/trl#7198): an image that comes again, which choosing prompts makes the rule, would be
    answered as the vision tower of before saw it, and trained on as the new one does. The cache of processed pixels is
    kept, as it does not depend on weights.
    """
    engine = trainer.vllm_generation
    sync_weights = engine.sync_weights

    @functools.wraps(sync_weights)
    def sync_and_forget():
        sync_weights()
        if engine.mode == "colocate":
            engine.llm.llm_engine.reset_encoder_cache()
        elif trainer.accelerator.is_main_process:
            _reset_encoder_cache_of_server(engine.vllm_client)

    engine.sync_weights = sync_and_forget


def reshard_before_sync(engine: Any) -> None:
    """Shard the weights again before `engine`, TRL's `VLLMGeneration`, gathers them one by one (FSDP2).

    After a forward pass torch leaves those of the root module whole, for the backward pass to come. An evaluation and
    initial rollouts have none. An engine that sleeps gets its weights before each batch; then TRL 1.16
    (`_iter_fsdp2_params`) ends with "'Tensor' object has no attribute 'full_tensor'".
    """
    iterate = engine._iter_fsdp2_params

    @functools.wraps(iterate)
    def resharded(module):
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()
        yield from iterate(module)

    engine._iter_fsdp2_params = resharded


def _reset_encoder_cache_of_server(client: Any) -> None:
    # Not `client._post`, which wants JSON in the answer (TRL 1.16); this one is empty.
    answer = client.session.post(f"{client.base_url}/reset_encoder_cache")
    if answer.status_code != 200:
        raise EngineError(
            f"The vLLM server at {client.base_url} answered {answer.status_code} to /reset_encoder_cache: "
            f"{answer.text[:200]!r}. It has to forget the vision embeddings of the weights before, or it would answer "
            "with those. Start vLLM 0.31 with VLLM_SERVER_DEV_MODE=1 in its environment."
        )


def without_missing_images(images: list[list[Any] | None] | None) -> list[list[Any]] | None:
    """Write the images of a row that has none as `[]`, in a batch where other rows have some.

    TRL 1.16 (`_tokenize_prompts`) writes `None` there, which its engines want and the processors of transformers 5.23
    refuse when the batch is prepared for the training forward (`fetch_images`: "only a single or a list of entries is
    supported"). Their rule is an empty list (huggingface/transformers#46043). A test says when this can go.
    """
    return None if images is None else [row_images or [] for row_images in images]
