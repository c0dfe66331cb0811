"""What TRL asks of a vLLM engine in its own process, put right: image tokens, one request a prompt, seeds.

TRL 1.16 (`VLLMGeneration.generate`, colocate) hands the engine every prompt once for each of its G completions, with
n = 1, token ids in which the image is already expanded, and the image.
"""

import copy
import functools
from typing import Any

from accelerate.utils import set_seed

from .repeated_prompts import equal_neighbours
from .request_seeds import request_seed


def correct_colocated_requests(trainer: Any) -> None:
    """Send each prompt once, with n completions, a seed, and one image token for each image.

    * vLLM expands image tokens itself, by its own processor; expanded ids are expanded again, and the answers are to
      another prompt than the one trained on (huggingface/trl#6294, huggingface/trl#6401).
    * With one request a prompt its image is hashed and processed once, not G times; and the group has n different
      completions under one seed (`request_seeds`), where n requests with one seed would have one.
    """
    llm, image_token = trainer.vllm_generation.llm, image_token_of_qwen(trainer.model.config)
    generate = llm.generate

    @functools.wraps(generate)
    def corrected(prompts, sampling_params=None, **options):
        if not _is_from_trl(prompts, sampling_params):  # a rollout function of the user's talks to the engine directly
            return generate(prompts, sampling_params, **options)
        groups = equal_neighbours(prompts)
        requests, params = [], []
        for index, group in enumerate(groups):
            ids = group[0]["prompt_token_ids"]
            requests.append({**group[0], "prompt_token_ids": with_single_tokens(ids, image_token)})
            params.append(copy.copy(sampling_params))
            params[-1].n = len(group)
            if params[-1].seed is None:
                params[-1].seed = request_seed(trainer, index, ids)
        outputs = generate(requests, sampling_params=params, **options)
        return [alone for output in outputs for alone in _one_each(output)]

    llm.generate = corrected
    # As it starts, vLLM 0.31 seeds the generators of its process, which is ours, with the number of the process:
    # whatever else draws from them (LoRA's dropout) would not follow `args.seed`. TRL's own line, once more:
    set_seed(trainer.args.seed, device_specific=True)


def image_token_of_qwen(model_config: Any) -> int | None:
    """Id of the token that stands for an image in the prompts of Qwen2-VL and its successors; None for other models.

    There each run of it is one image, since `<|vision_start|>` and `<|vision_end|>` stand around it, and vLLM expands
    a single one. Other families write their images otherwise, and are left to TRL.
    """
    if getattr(model_config, "vision_start_token_id", None) is None:
        return None
    return getattr(model_config, "image_token_id", None)


def with_single_tokens(ids: list[int], token: int | None) -> list[int]:
    """`ids` with each run of `token` written as one."""
    return [each for place, each in enumerate(ids) if each != token or place == 0 or ids[place - 1] != token]


def _is_from_trl(prompts: Any, sampling_params: Any) -> bool:
    """Whether this is a batch as TRL 1.16 makes it: rows of token ids, and one set of sampling parameters for all."""
    of_tokens = isinstance(prompts, list) and all(
        isinstance(row, dict) and "prompt_token_ids" in row for row in prompts
    )
    return of_tokens and getattr(sampling_params, "n", None) == 1


def _one_each(output: Any) -> list[Any]:
    """The answer to a request with n completions as n answers with one, as TRL expects them."""
    alone = [copy.copy(output) for _ in output.outputs]
    for each, completion in zip(alone, output.outputs, strict=True):
        each.outputs = [completion]
    return alone
