"""Corrections that generation needs under TRL, each at the smallest seam and each with its source."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

# Requests in flight at a time: as many connections as TRL's client keeps open (`_DEFAULT_GENERATION_CONCURRENCY`).
REQUESTS_AT_A_TIME = 64

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


def seed_server_requests(trainer: Any) -> None:
    """Make what a vLLM server samples a function of `args.seed` and the place in the run, so that a resume repeats it.

    Only a server needs it: its generator cannot be restored. The colocated engine runs in this process (TRL 1.16 asks
    for `external_launcher`) and draws from torch's and numpy's global generators, which checkpoints hold. A seed there
    would be wrong: TRL sends each prompt G times with one `SamplingParams`, and a group would be one completion only.

    To a server TRL sends each prompt once with n = G, and vLLM 0.31 gives completion i the seed + i. One seed for the
    whole batch would draw every group with the same noise, hence one request a prompt. A seed of the user's stands.
    """
    if not (trainer.use_vllm and trainer.vllm_mode == "server" and trainer.accelerator.is_main_process):
        return
    client = trainer.vllm_generation.vllm_client
    generate = client.generate

    def seeded(prompts, features=None, generation_kwargs=None, **options):
        # The step alone is not enough: it may hold several generation batches, each of them in several rounds
        # (`refill`), and so do the initial rollouts. An evaluation comes with the count of the batch that follows it.
        rollouts = 0 if trainer.selection is None else trainer.selection.rollouts
        training = int(trainer.model.training)

        def request(index):
            # The prompt tells the batches of an evaluation and the turns of a conversation with tools apart.
            place = (trainer.state.global_step, rollouts, training, index, zlib.crc32(repr(prompts[index]).encode()))
            seed = int(np.random.SeedSequence((trainer.args.seed, *place)).generate_state(1)[0])
            kwargs = {"seed": seed} | (generation_kwargs or {})
            own_features = None if features is None else [features[index]]
            return generate([prompts[index]], features=own_features, generation_kwargs=kwargs, **options)

        with ThreadPoolExecutor(REQUESTS_AT_A_TIME) as executor:
            answers = list(executor.map(request, range(len(prompts))))
        parts = {name: [answer[name] for answer in answers] for name in answers[0]}
        return {name: None if None in lists else [*chain(*lists)] for name, lists in parts.items()}

    client.generate = seeded


def without_missing_images(images: list[list[Any] | None] | None) -> list[list[Any]] | None:
    """Write the images of a row that has none as `[]`, in a batch where other rows have some.

    TRL 1.16 (`_tokenize_prompts`) writes `None` there, which its engines want and the processors of transformers 5.23
    refuse when the batch is prepared for the training forward (`fetch_images`: "only a single or a list of entries is
    supported"). Their rule is an empty list (huggingface/transformers#46043). A test says when this can go.
    """
    return None if images is None else [row_images or [] for row_images in images]
