"""Corrections of a vLLM engine: the requests to one in the trainer's process, and the image processing of any.

TRL 1.16 (`VLLMGeneration.generate`, colocate) sends each prompt once for each of its G completions, with n = 1, the
image, and token ids in which the image is already expanded.
"""

import copy
import functools
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from transformers import AutoImageProcessor

from trl_vade.errors import EngineError

logger = get_logger(__name__)


def correct_colocated_requests(trainer: Any) -> None:
    """Send each prompt once, with n completions, a seed, and one image token for each image.

    * vLLM expands image tokens by its own processor. Expanded ids are expanded again, so the answers belong to another
      prompt than the one trained on (huggingface/trl#6294, huggingface/trl#6401).
    * With one request for each prompt, its image is hashed and processed once, not G times. One seed then gives the
      group n different completions (see `request_seed`); n requests with one seed would give n equal ones.
    """
    llm, image_token = trainer.vllm_generation.llm, image_token_of_qwen(trainer.model.config)
    generate = llm.generate

    @functools.wraps(generate)
    def corrected(prompts, sampling_params=None, **options):
        for_all = getattr(sampling_params, "n", None) == 1 and isinstance(prompts, list)
        if not (for_all and all(isinstance(row, dict) and "prompt_token_ids" in row for row in prompts)):
            if trainer.rollout_func is None:  # which calls the engine itself
                logger.warning_once(
                    "Requests to the colocated engine, perhaps of your own code, are not as in TRL 1.16, so three "
                    "corrections are off: image tokens may be expanded twice, a prompt is sent once for each "
                    "completion, and no seed lets a resume repeat samples."
                )
            return generate(prompts, sampling_params, **options)
        requests, params = [], []
        for index, (_, rows) in enumerate(groupby(prompts, _ids_and_images)):
            group = [*rows]
            ids = group[0]["prompt_token_ids"]
            requests.append({**group[0], "prompt_token_ids": with_single_tokens(ids, image_token)})
            params.append(copy.copy(sampling_params))
            params[-1].n = len(group)
            if params[-1].seed is None:
                params[-1].seed = request_seed(trainer, index, ids)
        outputs = generate(requests, sampling_params=params, **options)
        return [alone for output in outputs for alone in _one_each(output)]

    llm.generate = corrected
    # vLLM 0.31 has seeded the generators of this process, also for LoRA's dropout. This line of TRL restores it:
    set_seed(trainer.args.seed, device_specific=True)


def image_token_of_qwen(model_config: Any) -> int | None:
    """Return the id of the image token of Qwen2-VL and its successors, or None for other models.

    In these models each run of image tokens is one image, between `<|vision_start|>` and `<|vision_end|>`, and vLLM
    expands a single token. Other families write images differently, and are left to TRL.
    """
    if getattr(model_config, "vision_start_token_id", None) is None:
        return None
    return getattr(model_config, "image_token_id", None)


def with_single_tokens(ids: list[int], token: int | None) -> list[int]:
    """Return `ids` with each run of `token` shortened to one."""
    return [each for place, each in enumerate(ids) if each != token or place == 0 or ids[place - 1] != token]


def request_seed(trainer: Any, index: int, ids: list[int]) -> int:
    """Return the seed, in [0, 2**32), of request `index` of this process's batch, so that a resume repeats samples.

    vLLM 0.31 gives completion i of a request the seed of the request + i. With a seed in each request, samples depend
    neither on the rest of the batch, nor on the engine's caches, nor on how the engine splits the batch. If the logits
    depend on the batch (bf16 on a GPU), a token may still differ. On CUDA, vLLM's runner seeds every request anyway.
    """
    place = (
        trainer.state.global_step,
        # A step may have several generation batches, each with several rounds; step 0 has the initial rollouts.
        0 if trainer.selection is None else trainer.selection.feedback.rollouts,
        int(trainer.model.training),
        index,
        zlib.crc32(repr(ids).encode()),  # tells the batches of an evaluation apart, and the turns with tools
        # The processes of a tensor-parallel group share an engine and must request the same samples.
        trainer.accelerator.process_index // trainer.vllm_generation.tensor_parallel_size,
    )
    return int(np.random.SeedSequence((trainer.args.seed, *place)).generate_state(1)[0])


def _ids_and_images(row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return what the completions of a row have in common: an image equals only itself, and they share the row's."""
    images = row.get("multi_modal_data", {}).get("image", [])
    return row["prompt_token_ids"], [*map(id, images if isinstance(images, list) else [images])]


def _one_each(output: Any) -> list[Any]:
    alone = [copy.copy(output) for _ in output.outputs]
    for each, completion in zip(alone, output.outputs, strict=True):
        each.outputs = [completion]
    return alone


@contextmanager
def engine_with_trainers_processor(trainer: Any, args: Any) -> Iterator[None]:
    """Hand the image settings of `trainer`'s processor to the vLLM engine that TRL makes inside this block.

    TRL 1.16 (`VLLMGeneration._init_vllm`) passes only the model's folder, whose processor may make pictures of another
    size: the answers would be to these. The engine needs the settings when it starts, to measure an image's memory.
    """
    if not (args.use_vllm and args.vllm_mode == "colocate"):
        yield
        return
    from trl.generation import vllm_generation  # which other runs may do without

    make = getattr(vllm_generation, "LLM", None)  # None if vLLM is not installed; TRL then raises

    def make_with_settings(model: str, **options: Any) -> Any:
        settings = image_settings(trainer.processing_class, model, trust_remote_code=args.trust_remote_code)
        return make(model=model, **({"mm_processor_kwargs": settings} if settings else {}) | options)

    vllm_generation.LLM = make_with_settings
    try:
        yield
    finally:
        vllm_generation.LLM = make


def image_settings(processing_class: Any, folder: str, **loading: Any) -> dict[str, Any]:
    """Return the settings in which the image processor of `processing_class` differs from that of the model."""
    if getattr(processing_class, "image_processor", None) is None:
        return {}
    ours = processing_class.image_processor.to_dict()
    folders = AutoImageProcessor.from_pretrained(folder, **loading).to_dict()
    return {name: ours[name] for name in folders.keys() & ours.keys() if ours[name] != folders[name]}


def refuse_other_processor_of_server(trainer: Any) -> None:
    """Make the engine raise `EngineError` if the server turns an image into another number of tokens than the trainer.

    TRL 1.16 (`VLLMGeneration._place_features`) pairs the server's images with the trainer's ids without a check. The
    engine of vLLM 0.31 then dies, and the trainer only sees a refused connection. For models of the Qwen-VL family.
    """
    engine = trainer.vllm_generation
    place = engine._place_features

    @functools.wraps(place)
    def compared(features, prompt_ids):
        placed = place(features, prompt_ids)
        sides = [side["mm_placeholders"]["image"] if side else [] for side in (features, placed)]
        theirs, ours = ([place["length"] for place in side] for side in sides)
        if theirs != ours:
            size = json.dumps({"size": trainer.processing_class.image_processor.to_dict()["size"]})
            raise EngineError(
                f"The vLLM server makes {theirs} tokens of the images of a prompt, but the trainer's processor "
                f"{ours}: the server has another processor or picture size. Start it with --mm-processor-kwargs "
                f"'{size}', or give the trainer the processor of the server's model."
            )
        return placed

    engine._place_features = compared
