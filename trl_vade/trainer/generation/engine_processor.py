"""Image processing of the engine as in the trainer: set for a colocated engine, compared for a server."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import AutoImageProcessor

from trl_vade.errors import EngineError


@contextmanager
def engine_with_trainers_processor(trainer: Any, args: Any) -> Iterator[None]:
    """Hand the image settings of `trainer`'s processor to the vLLM engine that TRL makes inside this block.

    TRL 1.16 (`VLLMGeneration._init_vllm`) passes only the model's folder to the engine, which loads the processor from
    there. With another picture size (`max_pixels`, `size`) the answers would belong to other images than those trained
    on. The engine needs the settings when it starts, because it measures the memory of an image with them.
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
    engine of vLLM 0.31 then dies, and the trainer only sees a refused connection. For models of the Qwen-VL family,
    whose images are runs of one token.
    """
    engine = trainer.vllm_generation
    place = engine._place_features

    @functools.wraps(place)
    def compared(features, prompt_ids):
        placed = place(features, prompt_ids)
        theirs, ours = (_tokens_of_images(side) for side in (features, placed))
        if theirs != ours:
            size = json.dumps({"size": trainer.processing_class.image_processor.to_dict()["size"]})
            raise EngineError(
                f"The vLLM server makes {theirs} tokens of the images of a prompt, but the trainer's processor "
                f"{ours}: the server has another processor or picture size. Start it with --mm-processor-kwargs "
                f"'{size}', or give the trainer the processor of the server's model."
            )
        return placed

    engine._place_features = compared


def _tokens_of_images(features: dict[str, Any] | None) -> list[int]:
    return [place["length"] for place in features["mm_placeholders"]["image"]] if features else []
